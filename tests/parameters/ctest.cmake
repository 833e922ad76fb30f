# They start threads, but none that tests/precision and tests/optimizer do not start too: under the thread sanitizer these
# many trainings would take as long as all the others together.
