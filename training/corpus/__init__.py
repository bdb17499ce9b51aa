"""From the files that `--data` names to token IDs on the disk, larger than memory or not.

A line goes one way: `sources` names its file, `read` has it from there, `filter` cleans or drops
it, `pairs` drops it if it occurs twice, or takes it to evaluate on, `slots` puts slots into it,
`store` writes its ids, and `batches` puts it into a batch. `training.data` calls them one after the
other.

Lines are read and cleaned in one process by the standard library. polars, tried in its place,
cannot say in which line of a file a third column or a byte that is not UTF-8 stands.
"""
