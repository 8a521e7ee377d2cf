"""Run scenes × methods under one stopwatch; tables and pictures of what came out."""
