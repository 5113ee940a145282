// What stores do to a commit: one loses its answer, one lets nobody write over another's.
package org.apache.hadoop.fs.local {

  import java.io.IOException
  import java.nio.file.{FileAlreadyExistsException, Files, Path => Local, Paths, StandardOpenOption}
  import java.util.{Iterator, UUID}
  import io.delta.storage.HDFSLogStore
  import org.apache.hadoop.conf.Configuration
  import org.apache.hadoop.fs.Path

  /** Writes a commit and then reports an error, as a store over a network does when its answer is lost.
    *
    * What is said in place of "done" is named by the property lost.answer; the commits it was said of go to the file lost.answers.
    */
  class LostAnswers(configuration: Configuration) extends HDFSLogStore(configuration) {

    override def write(path: Path, actions: Iterator[String], overwrite: java.lang.Boolean, hadoop: Configuration): Unit = {
      super.write(path, actions, overwrite, hadoop)
      if (path.getName.matches("\\d{20}\\.json")) {
        val line = s"${path.getParent.getParent.getName} ${path.getName}\n"
        Files.write(Paths.get(System.getProperty("lost.answers")), line.getBytes, StandardOpenOption.CREATE, StandardOpenOption.APPEND)
        throw System.getProperty("lost.answer") match {
          // A client that sends "put if absent" again after a timeout meets its own file.
          case "exists" => new FileAlreadyExistsException(path.toString)
          case _ => new IOException("the answer of the store was lost")
        }
      }
    }
  }

  /** Creates a commit or says that there is one, as object stores do: a link, unlike a rename, is never put in another file's place. */
  class Exclusive(configuration: Configuration) extends HDFSLogStore(configuration) {

    override def write(path: Path, actions: Iterator[String], overwrite: java.lang.Boolean, hadoop: Configuration): Unit = {
      if (overwrite) super.write(path, actions, overwrite, hadoop)
      else {
        val at = Paths.get(path.toUri.getPath)
        val whole: Local = at.resolveSibling(s".${at.getFileName}.${UUID.randomUUID}.tmp")
        val text = new StringBuilder
        while (actions.hasNext) text.append(actions.next).append('\n')
        Files.write(whole, text.toString.getBytes("UTF-8"))
        try Files.createLink(at, whole) finally Files.delete(whole)
      }
    }
  }
}
