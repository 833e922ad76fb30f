#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the tests: sh tests/run.sh [--yes] [quick|test|asan|tsan|bench|slow|gpu ...], without a word: test
exec sh "$(dirname "$0")/../cmake/bootstrap.sh" "$@"
