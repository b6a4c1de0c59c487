"""The csv format: options, header, multi-line records, decoder and writer."""
