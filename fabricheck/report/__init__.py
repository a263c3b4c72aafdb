"""The report of judged runs: a table for the terminal and one HTML file. It measures and judges nothing."""
