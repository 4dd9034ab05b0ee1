// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <string>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/clip.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/local_shards.hpp>
#include <shardkit/step/reduce.hpp>

#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace assumed_sums_test {

namespace {

struct Weight : sk::Param<"weight", float, 500> {};
struct Split : sk::Param<"split", float, 64>, sk::tp::Split<0> {};
struct Norm : sk::Param<"norm", float, 8> {};
struct Fixed : sk::Param<"fixed", float, 4>, sk::Frozen {};

template <class Group, class Rank>
using Replicated = sk::Sharded<Group, sk::NoShard, sk::Precision<float>>;

constexpr auto here = "assumed_sums_test.cpp:";

}  // namespace

TEST_CASE("assume_reduced of sums that differ by rank: the next call that ranks make anyway says so, on every rank") {
    std::string told[2];
    for (const bool clipped : {true, false}) {
        CAPTURE(clipped);
        CHECK_THROWS(sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            Replicated<sk::Params<Weight, Fixed>, decltype(rank)> layer(rank, "layer");
            sk::Model model{layer};
            sk::SGD optimizer{model};
            const auto memory = sk::gradient_shard(layer);
            memory[3] = 1;
            memory[layer.parameters()[1].range.begin] = static_cast<float>(rank.rank());  // frozen: nobody reads it
            optimizer.step(sk::assume_reduced(model));
            static_cast<void>(sk::global_norm(sk::assume_reduced(model)).value());
            memory[3] = 1 + static_cast<float>(rank.rank());
            try {
                if (clipped) {
                    static_cast<void>(sk::global_norm(sk::assume_reduced(model)));
                } else {
                    optimizer.step(sk::assume_reduced(model));
                    memory[3] = 1;
                    static_cast<void>(sk::global_norm(sk::assume_reduced(model)));
                }
            } catch (const sk::CommError& error) {
                told[rank.rank()] = error.what();
                throw;
            }
        }));
        for (const std::string& each : told) {
            CAPTURE(each);
            CHECK(has(each, "rank 0 calls all_reduce"));
            CHECK(has(each, "with assumed reduced gradients of sum 1 (hash "));
            CHECK(has(each, "with assumed reduced gradients of sum 2 (hash "));
            CHECK(has(each, here));
        }
    }
}

TEST_CASE("assume_reduced: what differs rightly by rank is not compared: shards, and what tp splits") {
    sk::threads::run(sk::DeviceMesh<2, 2>{}, [](auto& rank) {
        sk::Sharded<sk::Params<Weight>, sk::FullShard, sk::Precision<float>> shard(rank, "shard");
        Replicated<sk::Params<Split, Norm>, decltype(rank)> layer(rank, "layer");
        sk::Model model{shard, layer};
        sk::SGD optimizer{model};
        for (float& sum : sk::gradient_shard(shard)) { sum = 1 + static_cast<float>(rank.rank() / 2); }
        const auto memory = sk::gradient_shard(layer);
        memory[0] = static_cast<float>(rank.rank() % 2);  // of this tp rank's part
        auto reduced = sk::assume_reduced(model);
        const auto norm = sk::global_norm(reduced);
        optimizer.step(std::move(reduced), sk::clip(norm, 1));
        CHECK_NOTHROW(static_cast<void>(shard.unshard()));
    });
}

TEST_CASE("assume_reduced: gradients of a parameter that tp holds whole differ by tp rank") {
    CHECK_THROWS_AS(sk::threads::run(sk::DeviceMesh<1, 2>{},
                                     [](auto& rank) {
                                         Replicated<sk::Params<Split, Norm>, decltype(rank)> layer(rank, "layer");
                                         sk::Model model{layer};
                                         const auto memory = sk::gradient_shard(layer);
                                         memory[layer.parameters()[1].range.begin + 7] =
                                             static_cast<float>(rank.rank());
                                         static_cast<void>(sk::global_norm(sk::assume_reduced(model)));
                                     }),
                    sk::CommError);
}

}  // namespace assumed_sums_test
