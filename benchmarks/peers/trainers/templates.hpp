// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/extern_templates.hpp>
#include <shardkit/optim/adamw.hpp>

SHARDKIT_TEMPLATES(extern, shardkit::threads::Engine, shardkit::DefaultPrecision<float>, shardkit::rules::AdamWRule)
SHARDKIT_THREADS_TEMPLATES(extern)
