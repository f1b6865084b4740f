"""Export and import of background jobs: from a data folder or a cluster into a file, and back."""
