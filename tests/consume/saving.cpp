// SPDX-License-Identifier: Apache-2.0
// A trainer that saves beside its steps: compiled with warnings that users have and the library has not.
#include <optional>
#include <shardkit/checkpoint.hpp>
#include <shardkit/shardkit.hpp>
namespace sk = shardkit;
struct W : sk::Param<"w", float, 4> {};
int main() {
    sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {
        sk::Sharded<sk::Params<W>, sk::FullShard> l(rank, "l");
        sk::Model m{l};
        sk::AdamW o{m};
        std::optional<sk::checkpoint::PendingSave> pending;
        for (std::uint64_t step = 0; step < 3; ++step) {
            if (pending) {
                std::move(*pending).commit();
                pending.reset();
            }
            pending = sk::checkpoint::begin_save(rank, "run", step, sk::checkpoint::State{m, o}, {.replace = true});
        }
        if (pending) { std::move(*pending).commit(); }
        if (const auto found = sk::checkpoint::latest(rank, "run")) {
            sk::checkpoint::load(rank, found->path, sk::checkpoint::State{m, o});
        }
    });
}
