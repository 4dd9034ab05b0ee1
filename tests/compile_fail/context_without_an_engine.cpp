// SPDX-License-Identifier: Apache-2.0
// A trainer's file that names no engine includes one all the same.
// expected-error: Engine is only declared here; include an engine's run.hpp
#include <shardkit/rank/context.hpp>
#ifndef REJECT
#include <shardkit/backend/self/engine.hpp>
#endif

void train(shardkit::Context<>& rank) { rank.synchronize(); }
