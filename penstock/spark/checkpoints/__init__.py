"""What a job keeps: its files, who may use them, how they are copied, changed, mended and read."""
