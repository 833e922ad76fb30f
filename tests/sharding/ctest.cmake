# Ranks are threads: the thread sanitizer runs them, but for the matrix of policies. Some make figures.
set(chunkmem_labels threads figures)
set(chunkmem_unsanitized ON)
set(chunkmem_sanitized_files "(sharded_model|step_of_ranks|agreed_measure|unit_gradients|rank_manager|rank_tensors|rank_pin)_test[.]cpp")
