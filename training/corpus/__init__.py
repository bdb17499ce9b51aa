"""From the files that `--data` names to token ids on the disk, larger than memory or not.

A line goes one way: `read` has it from its file, `filter` cleans or drops it, `unique` drops it if
it occurs twice, `store` writes its ids, and `batches` puts it into a batch. `training.data` calls
them one after the other; each knows only those before it, and none a task or a model.
"""
