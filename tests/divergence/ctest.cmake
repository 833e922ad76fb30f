# They start threads, but none that tests/equality and tests/optimizer do not start too: not under the thread sanitizer.
