#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Trains the GPT example in a quarter of its memory: sh examples/run.sh [--yes]
exec sh "$(dirname "$0")/../cmake/bootstrap.sh" demo "$@"
