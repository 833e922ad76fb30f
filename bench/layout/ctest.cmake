# Waste is arithmetic, the same on every machine: a test holds it against its bounds.
chunkmem_test(layout.waste LABELS figures TIMEOUT 900 COMMAND chunk_waste_bench)
