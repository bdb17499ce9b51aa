"""The sides of benchmarks/bleu.py: each trains on the same pairs and yields BLEU by minutes."""
