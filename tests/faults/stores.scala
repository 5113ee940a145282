// What stores do to a commit: one loses its answer, one lets another writer in between its look and its rename.
package org.apache.hadoop.fs.local {

  import java.io.IOException
  import java.net.URI
  import java.nio.file.{FileAlreadyExistsException, Files, Paths, StandardOpenOption}
  import java.util.Iterator
  import io.delta.storage.HDFSLogStore
  import org.apache.hadoop.conf.Configuration
  import org.apache.hadoop.fs.{ChecksumFs, DelegateToFileSystem, FsConstants, Path, RawLocalFileSystem}

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

  /** The local file system, which looks whether a file is there and then renames over it: this one stands still in between.
    *
    * It does at the file that the property halt.at names, says so by making the file halt.here, and goes on once that is gone.
    */
  class Halting(uri: URI, configuration: Configuration) extends ChecksumFs(new HaltingFs(configuration))

  class HaltingFs(configuration: Configuration)
      extends DelegateToFileSystem(FsConstants.LOCAL_FS_URI, new HaltingFileSystem, configuration, "file", false) {

    override def getUriDefaultPort: Int = -1
    override def isValidName(name: String): Boolean = true
  }

  class HaltingFileSystem extends RawLocalFileSystem {

    override def rename(from: Path, to: Path): Boolean = {
      val here = Paths.get(System.getProperty("halt.here"))
      if (to.toUri.getPath == System.getProperty("halt.at")) {
        Files.createFile(here)
        while (Files.exists(here)) Thread.sleep(20)
      }
      super.rename(from, to)
    }
  }
}
