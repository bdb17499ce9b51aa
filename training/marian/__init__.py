"""Published Marian models, in both forms in which they are downloaded, as run folders."""
