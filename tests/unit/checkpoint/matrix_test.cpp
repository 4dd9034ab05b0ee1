// SPDX-License-Identifier: Apache-2.0
// Every mesh of some worlds with every policy and several precisions: each loads what the one before it has saved,
// and saves the same bytes. What a load gives depends on the bytes alone, so that this speaks for all pairs.
#include <shardkit/checkpoint.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/full_shard.hpp>
#include <shardkit/policy/hybrid_shard.hpp>
#include <shardkit/policy/no_shard.hpp>
#include <shardkit/policy/shard_grad_op.hpp>
#include <shardkit/policy/shard_optimizer.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/reduce.hpp>

#include "temporary_folder.hpp"
#include "test_size.hpp"

namespace matrix_test {

namespace {

namespace sk = shardkit;
using temporary_folder::contents;
using temporary_folder::Folder;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

// Of 8 ranks some have nothing of "two" and "fixed", or padding alone; tp of 2, 3, 5 and 8 splits the first three,
// into runs longer and shorter than a page.
template <class T>
struct Rows : sk::Param<"rows", T, 120, 9>, sk::tp::Split<0> {};
template <class T>
struct Narrow : sk::Param<"narrow", T, 7, 120>, sk::tp::Split<1> {};
template <class T>
struct Wide : sk::Param<"wide", T, 2, 24000>, sk::tp::Split<1> {};
template <class T>
struct Two : sk::Param<"two", T, 2> {};
template <class T>
struct Tied : sk::Alias<"tied", Two<T>> {};
template <class T>
struct Fixed : sk::Param<"fixed", T, 7>, sk::Frozen {};
template <class T>
using Block = sk::Params<Rows<T>, Narrow<T>, Wide<T>, Two<T>, Tied<T>, Fixed<T>>;
template <class T>
struct Alone : sk::Param<"alone", T, 1> {};

/// What was written need not survive the machine.
class InCache : public sk::PosixFiles {
  public:
    int sync(int) override { return 0; }
    int sync_folder(const std::string&) override { return 0; }
};

/// Optimizer::make(groups), and whether there is a loss scale.
struct WithAdamW {
    static auto make(auto groups) { return sk::AdamW{groups}; }
    static constexpr bool scales = true;
};
struct WithPlainSgd {
    static auto make(auto groups) { return sk::SGD{groups}; }
    static constexpr bool scales = false;
};

template <class Engine, class T, class Optimizer>
struct Training {
    using Layer = sk::Sharded<Block<T>, sk::DynamicPolicy, Engine>;
    using Listed = sk::Sharded<sk::TensorList<T>, sk::DynamicPolicy, Engine>;
    using Skipped = sk::Sharded<sk::Params<Alone<T>>, sk::DynamicPolicy, Engine>;

    Training(sk::Context<Engine>& context, const sk::DynamicPolicy& policy)
        : layer(context, "layer", {}, {policy}),
          listed(context, "listed", sk::TensorList<T>{{"a", {3, 5}}, {"b", {11}}}, {policy}),
          skipped(context, "skipped", {}, {policy}),
          groups(sk::groups(layer, listed, skipped)),
          optimizer(Optimizer::make(groups)),
          loss_scale(context, {.initial = 32}),
          state(make_state()) {}
    auto make_state() {
        if constexpr (Optimizer::scales) {
            return sk::CheckpointState{groups, optimizer, loss_scale};
        } else {
            return sk::CheckpointState{groups, optimizer};
        }
    }
    /// One rank's: values that all differ, and a step.
    void begin() {
        const auto values = [](std::string_view, std::string_view name, std::uint64_t i) {
            return static_cast<double>(i % 8191) / 64 + static_cast<double>(name.size());
        };
        layer.initialize(values);
        listed.initialize(values);
        skipped.initialize(values);
        sk::Accumulation accumulation{groups};
        const auto add = [&](auto& group) {
            auto gradients = accumulation.gradients(group);
            for (std::size_t p = 0; p < group.parameters().size(); ++p) {
                auto view = gradients.view(p);
                for (std::size_t i = 0; i < view.size(); ++i) { view.data()[i] = T(static_cast<float>(i % 5 + 1)); }
            }
            accumulation.add(std::move(gradients));
        };
        add(layer);
        add(listed);
        accumulation.skip(skipped);
        optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
    }

    Layer layer;
    Listed listed;
    Skipped skipped;
    sk::Groups<Layer, Listed, Skipped> groups;
    decltype(Optimizer::make(std::declval<sk::Groups<Layer, Listed, Skipped>>())) optimizer;
    sk::LossScale<Engine> loss_scale;
    sk::CheckpointState<Engine> state;
};

std::vector<Mesh> meshes() {
    std::vector<Mesh> all;
    for (const std::size_t world : {1U, 2U, 3U, 5U, 8U}) {
        for (std::size_t dp = 1; dp <= world; ++dp) {
            for (std::size_t tp = 1; tp <= world / dp; ++tp) {
                if (world % (dp * tp) == 0) { all.emplace_back(dp, tp, world / (dp * tp)); }
            }
        }
    }
    return all;
}

std::vector<sk::DynamicPolicy> policies(const Mesh& mesh) {
    std::vector<sk::DynamicPolicy> all{sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
                                       sk::DynamicPolicy(sk::ShardGradOp{}), sk::DynamicPolicy(sk::FullShard{})};
    if (mesh.dp() % 2 == 0) { all.emplace_back(sk::HybridShard<2>{}); }
    return all;
}

template <class T, class Optimizer>
void check_all(std::size_t files) {
    const Folder folder;
    InCache calls;
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        Training<sk::self::Engine, T, Optimizer> training(rank, sk::DynamicPolicy(sk::NoShard{}));
        training.begin();
        sk::save(rank, folder.file("first"), 1, training.state, {.files = &calls});
    });
    std::string last = folder.file("first");
    const auto expected = contents(last + "/step-00000001");
    REQUIRE(expected.size() == files);
    std::size_t number = 0;
    for (const Mesh& mesh : meshes()) {
        for (const sk::DynamicPolicy& policy : policies(mesh)) {
            if (number++ % (test_size::reduced() ? 7 : 1) != 0) { continue; }
            CAPTURE(mesh.describe());
            CAPTURE(policy.name());
            const std::string next = folder.file(std::to_string(number));
            REQUIRE_NOTHROW(sk::threads::run(mesh, [&](auto& rank) {
                Training<sk::threads::Engine, T, Optimizer> training(rank, policy);
                sk::load(rank, last + "/step-00000001", training.state, {.files = &calls});
                sk::save(rank, next, 1, training.state, {.files = &calls});
            }));
            REQUIRE(contents(next + "/step-00000001") == expected);
            std::filesystem::remove_all(last);
            last = next;
        }
    }
    CHECK(number == 87);
}

}  // namespace

TEST_CASE(
    "all meshes of 1, 2, 3, 5 and 8 ranks with all policies load and save the same bytes: fp32, AdamW, loss scale") {
    check_all<float, WithAdamW>(5);
}
TEST_CASE("the same in bf16 with masters, AdamW and a loss scale") { check_all<sk::bf16, WithAdamW>(6); }
TEST_CASE("the same in fp16 with masters, AdamW and a loss scale") { check_all<sk::fp16, WithAdamW>(6); }
TEST_CASE("the same in fp64 with SGD, which has no momentum") { check_all<double, WithPlainSgd>(3); }

}  // namespace matrix_test
