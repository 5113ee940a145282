"""Mutants of the direct writer: name, test that fails, guarantee, file, and alternating old and new text. Their tests need no Spark."""

from __future__ import annotations

BATCHES, STAGED = "unit/batch/test_batches.py::test_", "unit/batch/test_staged_files.py::test_"
COMMITS, COMPARED = "unit/delta/test_direct_writer.py::test_", "unit/batch/test_compare.py::test_"
WINS = f"{BATCHES}of_the_copies_in_a_batch_the_least_position_wins_and_another_payload_is_a_conflict"
DIES = f"{BATCHES}a_batch_whose_driver_dies_is_repeated_without_loss_or_copies"
SPARED = f"{BATCHES}records_that_are_rows_stay_rows_when_they_are_read_again_under_a_stricter_rule"
AGAIN = f"{STAGED}another_look_gives_what_a_first_one_would_and_opens_no_file_twice"
INDEXED, SEGMENTS, SEGMENT = "unit/batch/test_indexed_ids.py::test_", "unit/delta/test_id_segment.py::test_", "delta/id_segment.py"
BETWEEN = f"{COMMITS}a_commit_between_look_and_put_is_noticed_and_decided_upon_again"
FENCED = f"{COMMITS}a_fence_carries_its_transaction_id_and_an_older_or_equal_one_is_refused"
SWAP = "unit/repair/test_swap.py::test_"
ROW_DECIDES = f"{COMPARED}the_first_row_with_a_hash_decides_about_every_copy_of_its_id"
MERGES, EXPIRED = "unit/delta/test_compaction.py::test_", "delta/expired_files.py"
KEPT = "unit/delta/test_expired_files.py::test_a_file_stays_as_long_as_a_version_of_the_retention_needs_it"
CLEANED = "unit/repair/test_maintenance.py::test_commits_older_than_the_logs_retention_go_below_a_checkpoint_and_a_start_and_verify_go_on"
DIRECT, FILES, WRITER, PUT = "batch/direct.py", "batch/staged_parts.py", "delta/direct_writer.py", "delta/put.py"
FENCE = "if table.state.transactions.get(batch_commit.app_id, -1) >= batch_commit.id.txn_version:"
QUARANTINE, FINISH = "stored = batch.quarantine(staged, reread=reread)", "finish(table, writer, commit, clock, reread=reread)"
REWRITTEN = "written = [write_partition(self.folder, rows, self.statistics, file.partition_values, self.prefix)]"
FOUND = "        self._on_disk(found)\n        return found"
# Takes all files of the batch in the folder, not those that Spark's result names.
LISTED = """        names = {each.path for each in found} | {part.file.path for part in self.parts if part.file is not None}
        for path in Path(self.folder).rglob(f"{self.prefix}*.parquet"):
            if (name := str(path.relative_to(self.folder))) not in names:
                found.append(StagedFile(name, path.stat().st_size, 0, "{}"))
"""

DIRECT_MUTANTS = (
    ("a commit takes whatever version is free", BETWEEN, "I8", PUT, "version = table.version + 1", "version = table.log.newest() + 1"),
    ("any commit that is there is taken for our own", BETWEEN, "I8", PUT, "if there == data:", "if there is not None:"),
    (
        "two commits may have the same bytes",
        f"{COMMITS}another_commit_with_the_same_content_is_not_taken_for_our_own",
        "I1",
        PUT,
        '"txnId": str(uuid.uuid4())',
        '"txnId": ""',
    ),
    (
        "our own commit is not recognized after an error",
        f"{COMMITS}an_error_after_the_commit_was_stored_is_no_second_commit",
        "I1",
        PUT,
        "if there == data:",
        "if False:",
    ),
    (
        "an unknown outcome is taken for a failure",
        f"{COMMITS}a_version_that_cannot_be_read_has_an_unknown_outcome",
        "I1",
        PUT,
        "kind = NotStored if surely_not else OutcomeUnknown",
        "kind = NotStored",
    ),
    (
        "the last commit that was looked at is not compared",
        f"{COMMITS}a_table_that_is_another_one_is_refused_at_the_next_look",
        "I6",
        "delta/live_table.py",
        'if (self._files.read(self.path_of(version)) or b"") != data:',
        "if False:",
    ),
    ("a transaction id is not compared", FENCED, "I8", WRITER, FENCE, "if False:"),
    ("a transaction id may be used again with other content", FENCED, "I8", WRITER, FENCE, FENCE.replace(">=", ">")),
    (
        "a statement may follow another snapshot than the one that was judged",
        f"{COMMITS}what_a_statement_has_judged_is_the_very_snapshot_that_it_replaces",
        "I8",
        WRITER,
        "            if table.look():\n",
        "            table.look()\n            if False:\n",
    ),
    (
        "a swap commits although rows were added after its look",
        f"{SWAP}a_row_that_somebody_adds_after_the_first_look_is_judged_too",
        "I8",
        "repair/swap.py",
        "if any(commit.added or commit.removed for commit in logs.target.since(counted)):",
        "if False:",
    ),
    (
        "a swap leaves one of the old files",
        f"{SWAP}one_commit_replaces_all_files_by_the_shadows_and_time_travel_reaches_the_old_rows",
        "I3",
        WRITER,
        "for path, file in table.live.items() if path not in names]",
        "for path, file in [*table.live.items()][1:] if path not in names]",
    ),
    (
        "a swap that is repeated adds its files twice",
        f"{SWAP}the_same_command_completes_a_swap_that_died_behind_any_of_its_commits",
        "I3",
        WRITER,
        "file.addition() for file in new if file.path not in table.live",
        "file.addition() for file in new",
    ),
    (
        "a file without statistics is not opened",
        f"{STAGED}a_file_without_statistics_is_opened",
        "I3",
        "batch/probe.py",
        "(high is not None and least > high)",
        "high is None or least > high",
    ),
    (
        "the maximum of a long text is cut and not raised",
        "unit/delta/test_statistics.py::test_no_text_is_outside_its_bounds",
        "I3",
        "delta/statistics.py",
        "text = text[:TEXT_MAX] + HIGHEST",
        "text = text[:TEXT_MAX]",
    ),
    (
        "the maximum of a time is taken for exact",
        f"{COMMITS}a_maximum_of_time_that_another_engine_has_cut_excludes_nothing",
        "I3",
        "delta/live_table.py",
        "found[name] = value + MILLISECOND",
        "found[name] = value",
    ),
    (
        "a file that loses rows keeps its bounds",
        f"{STAGED}a_file_that_loses_rows_has_bounds_of_the_rest",
        "I3",
        FILES,
        REWRITTEN,
        f"{REWRITTEN}\n            written = [StagedFile(each.path, each.size, each.rows, file.stats) for each in written]",
    ),
    (
        "the files of a task that was tried again are committed too",
        f"{BATCHES}files_of_a_task_that_was_tried_again_are_of_no_commit",
        "I3",
        FILES,
        FOUND,
        LISTED + FOUND,
    ),
    (
        "the size of a staged file is not checked",
        f"{STAGED}a_staged_file_of_another_size_is_not_committed",
        "I5",
        "delta/data_file.py",
        "!= each.size:",
        "< 0:",
    ),
    (
        "a commit names files that are not on the disk",
        f"{STAGED}every_file_is_on_the_disk_before_it_is_named_and_is_written_once_if_nothing_has_changed",
        "I1",
        FILES,
        "            sync(self.folder, [each.path for each in new])",
        "            pass",
    ),
    (
        "the direct writer quarantines after the target",
        DIES,
        "I7",
        DIRECT,
        QUARANTINE,
        "stored = staged.failed()",
        f"return {FINISH}",
        f"done = {FINISH}\n    batch.quarantine(staged, reread=reread)\n    return done",
    ),
    (
        "a rule that is NULL holds",
        "unit/decode/test_events.py::test_a_rule_that_is_neither_true_nor_false_is_broken",
        "I5",
        "decode/rule_expression.py",
        "_Rows(batch.num_rows, columns)), False)",
        "_Rows(batch.num_rows, columns)), True)",
    ),
    ("copies in one batch are all added", WINS, "I3", "batch/staged.py", "        if not again.size:", "        if True:"),
    ("the last of the copies in a batch wins", WINS, "I3", "batch/dedup.py", '(name, "ascending")', '(name, "descending")'),
    (
        "the payloads of the copies in a batch are not compared",
        WINS,
        "I3",
        "batch/dedup.py",
        "pc.equal(ordered[PAYLOAD], first[PAYLOAD])",
        "pc.equal(first[PAYLOAD], first[PAYLOAD])",
    ),
    (
        "the payload of the table's row is not compared",
        ROW_DECIDES,
        "I3",
        "batch/staged.py",
        'pc.equal(found[PAYLOAD_HASH], found["__hash"])',
        'pc.equal(found["__hash"], found["__hash"])',
    ),
    (
        "a row that is read again conflicts with itself",
        ROW_DECIDES,
        "I3",
        "batch/staged.py",
        ", itself).to_numpy()",
        ", pc.and_not(itself, itself)).to_numpy()",
    ),
    (
        "upper halves of hashes that agree are a hit",
        f"{INDEXED}upper_halves_that_are_equal_are_no_hit",
        "I3",
        "delta/id_index.py",
        "hit = (lows[at] == low[left]) & asked[numbers[at]]",
        "hit = asked[numbers[at]]",
    ),
    (
        "the hashes of a removed file count",
        f"{INDEXED}rows_of_a_file_that_is_gone_do_not_count",
        "I3",
        "delta/id_index.py",
        "asked = np.zeros(len(segment.files), bool)",
        "asked = np.ones(len(segment.files), bool)",
        "order[rows[of_files == number]]",
        "order[rows]",
    ),
    (
        "a file without a segment is passed over",
        f"{INDEXED}random_ids_read_each_file_once_and_every_duplicate_is_found",
        "I3",
        "batch/probe.py",
        "if not may.any():",
        "if index is not None or not may.any():",
    ),
    (
        "a level is lost in a merge",
        f"{SEGMENTS}merged_segments_have_the_hashes_of_every_live_file_once",
        "I3",
        SEGMENT,
        "    for segment in segments:\n        segment.verify()",
        "    for segment in segments[1:]:\n        segment.verify()",
    ),
    (
        "a merge keeps the hashes of removed files",
        f"{SEGMENTS}merged_segments_have_the_hashes_of_every_live_file_once",
        "I3",
        SEGMENT,
        "if file not in files and file[0] in live and segment.number(live[file[0]]) == at:",
        "if file not in files:",
    ),
    (
        "a segment is not verified",
        f"{SEGMENTS}no_bit_can_change_and_no_byte_can_go_unnoticed",
        "I3",
        SEGMENT,
        '            raise Damaged(f"{self.path}: its checksum differs")',
        "            pass",
    ),
    (
        "a segment that was written to during the run is not verified again",
        f"{INDEXED}a_segment_that_somebody_writes_to_during_a_run_is_verified_again_and_made_anew",
        "I3",
        "delta/id_index.py",
        "if segment is None or segment.stamp != stamp(path):",
        "if segment is None:",
    ),
    (
        "another file of the same name counts as the one that a segment is of",
        f"{SEGMENTS}a_segment_is_of_a_file_with_its_path_size_and_rows",
        "I3",
        SEGMENT,
        "self.files[at][1] != file.size or",
        "",
    ),
    (
        "an erasure leaves the hashes of ids",
        f"{INDEXED}an_erasure_leaves_no_hash_of_an_id_that_it_erased",
        "I5",
        "repair/erasure.py",
        "    _remove_hashes(places)\n    if history",
        "    if history",
    ),
    ("rows in a removed file count as held", AGAIN, "I3", "batch/staged.py", " if path in target.live}", "}"),
    (
        "a part is probed in the first look only",
        AGAIN,
        "I3",
        "batch/staged.py",
        "if number not in self._probed.get(file.path, {})]",
        "if not self._probed]",
    ),
    ("refused records that are rows are quarantined", SPARED, "I4", "batch/staged.py", "self.refused.lose(positions)", "pass"),
    (
        "a batch that stops leaves files in the quarantine",
        f"{BATCHES}a_batch_that_stops_the_run_leaves_no_files",
        "I7",
        DIRECT,
        "self.unnamed = {self.target_folder, self.quarantine_folder}",
        "self.unnamed = {self.target_folder}",
    ),
    (
        "refused records that are rows leave a file in the quarantine",
        f"{BATCHES}if_all_refused_records_are_rows_nothing_is_quarantined",
        "I7",
        DIRECT,
        "            parts.remove()  # all of them are rows already\n",
        "",
    ),
    (
        "a merged file has the bounds of its last row group",
        f"{MERGES}rows_are_read_and_written_in_row_groups_of_bounded_size",
        "I3",
        "delta/data_file.py",
        "            found.add(part)\n",
        "            found = Statistics(statistics_of)\n            found.add(part)\n",
    ),
    (
        "a compaction brings deleted rows back",
        f"{MERGES}a_group_of_which_a_delete_has_removed_a_file_is_dropped_and_no_row_comes_back",
        "I1",
        "delta/compaction.py",
        "if any(file.path not in now.live for file in each.group)",
        "if False",
    ),
    (
        "a compaction looks like a change of rows",
        f"{MERGES}small_files_become_one_with_the_same_rows_and_exact_statistics",
        "I4",
        "delta/compaction.py",
        "[file.addition(data_change=False) for file in added]",
        "[file.addition() for file in added]",
    ),
    ("VACUUM ignores when a file was removed", KEPT, "I7", EXPIRED, " and os.path.realpath(name) not in removed", ""),
    ("VACUUM goes by a checkpoint that has forgotten removals", KEPT, "I7", EXPIRED, "by_log or each", "each"),
    (
        "a file that VACUUM has taken is named by the commit that was outrun",
        f"{MERGES}a_merged_file_that_a_vacuum_has_taken_meanwhile_is_not_committed",
        "I5",
        "delta/compaction.py",
        "        refuse_changed(folder, [each.file for each in merged])\n",
        "",
    ),
    ("VACUUM takes the files of a batch in progress", KEPT, "I7", EXPIRED, "status.st_mtime < before_s and ", ""),
    ("the log is cleaned whatever its retention", CLEANED, "I2", "delta/log_cleanup.py", ".st_mtime <= before_s", ".st_mtime >= 0"),
)
