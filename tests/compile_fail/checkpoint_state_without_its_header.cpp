// SPDX-License-Identifier: Apache-2.0
// expected-error: saving and loading need another header beside shardkit.hpp: #include <shardkit/checkpoint.hpp>
#include <shardkit/shardkit.hpp>
#ifndef REJECT
#include <shardkit/checkpoint.hpp>
#endif

namespace sk = shardkit;
using Engine = sk::threads::Engine;

void keep(sk::Model<Engine>& model, sk::AdamW<Engine>& optimizer) {
    sk::checkpoint::State state{model, optimizer};
    static_cast<void>(state);
}
