#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the tests: sh tests/run.sh [--yes] [quick|test|asan|tsan|bench|slow|gpu|aarch64 ...], without a word: test
exec sh "$(dirname "$0")/../cmake/bootstrap.sh" "$@"
