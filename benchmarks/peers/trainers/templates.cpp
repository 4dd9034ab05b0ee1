// SPDX-License-Identifier: Apache-2.0
// What with_library.cpp leaves out when it is compiled with `-include templates.hpp`.
#include "templates.hpp"

SHARDKIT_TEMPLATES(, shardkit::threads::Engine, shardkit::DefaultPrecision<float>, shardkit::rules::AdamWRule)
SHARDKIT_THREADS_TEMPLATES()
