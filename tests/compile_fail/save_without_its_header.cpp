// SPDX-License-Identifier: Apache-2.0
// expected-error: saving and loading need another header beside shardkit.hpp: #include <shardkit/checkpoint.hpp>
#include <shardkit/shardkit.hpp>
#ifndef REJECT
#include <shardkit/checkpoint.hpp>
#endif

namespace sk = shardkit;
using Engine = sk::threads::Engine;

#ifndef REJECT
void save(sk::Context<Engine>& rank, sk::Model<Engine>& model, sk::AdamW<Engine>& optimizer) {
    sk::checkpoint::save(rank, "runs/7", 1, sk::checkpoint::State{model, optimizer});
}
#endif
void load(sk::Context<Engine>& rank, sk::Model<Engine>& model) {
    sk::checkpoint::load_model(rank, "model.safetensors", model);
    static_cast<void>(sk::checkpoint::latest(rank, "runs/7"));
}
