// SPDX-License-Identifier: Apache-2.0
// Optimizers whose states are bf16 or blocks of 8 bits: the same bits on every mesh, under every policy and after a
// resume elsewhere; what they cost; and where they are refused.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/shardkit.hpp>

#include "temporary_folder.hpp"
#include "unit/thrown_message.hpp"

namespace state_format_test {

namespace sk = shardkit;
using Engine = sk::threads::Engine;
using temporary_folder::Folder;

// Sizes that divide nothing; the last block of each parameter is a part of one.
struct Weight : sk::Param<"weight", float, 67, 13> {};
struct Bias : sk::Param<"bias", float, 33> {};
struct One : sk::Param<"one", float, 1> {};
using Net = sk::Params<Weight, Bias, One>;
using Layer = sk::Sharded<Net, sk::DynamicPolicy, Engine>;

/// A model whose gradients are on data rank 0 alone: their sum has the same bits on any number of ranks.
template <class Optimizer>
struct Trainer {
    template <class Make>
    Trainer(sk::Context<Engine>& context, const sk::DynamicPolicy& policy, const Make& make)
        : layer(context, "layer", sk::Shapes<Net>{}, Layer::Options{policy}),
          model{layer},
          optimizer(make(model)),
          state(model, optimizer) {
        layer.initialize([](auto, auto, std::size_t i) { return 0.01 * static_cast<double>(i % 31) - 0.15; });
    }
    void step(std::size_t number) {
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        for (std::size_t p = 0; p < layer.parameters().size() && layer.context().rank() == 0; ++p) {
            auto view = gradients.view(p);
            for (std::size_t i = 0; i < view.size(); ++i) {
                const double wave = std::sin(0.37 * static_cast<double>(i * (p + 1)) + static_cast<double>(number));
                view.data()[i] += static_cast<float>(wave * (i % 7 == 0 ? 1e-4 : 1e-2));
            }
        }
        accumulation.add(std::move(gradients));
        optimizer.step(sk::reduce(std::move(accumulation), sk::divide_by(1)));
    }
    std::uint64_t hash() {
        std::uint64_t hash = 14695981039346656037U;
        const auto window = layer.unshard();
        for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
            for (const float value : window.view(p)) {
                hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 1099511628211U;
            }
        }
        return hash;
    }

    Layer layer;
    sk::Model<Engine> model;
    Optimizer optimizer;
    sk::CheckpointState<Engine> state;
};

const std::vector<sk::DynamicPolicy>& policies() {
    static const std::vector<sk::DynamicPolicy> all{
        sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::FullShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
        sk::DynamicPolicy(sk::ShardGradOp{})};
    return all;
}

/// Runs steps [first, last) on `ranks`, loads before and saves after where there is a folder.
template <class Optimizer, class Make>
std::uint64_t trained(std::size_t ranks, const sk::DynamicPolicy& policy, std::size_t first, std::size_t last,
                      const Make& make, const std::string& folder = {}) {
    std::uint64_t hash = 0;
    sk::threads::run(sk::DeviceMesh<sk::dynamic>{ranks}, [&](auto& rank) {
        Trainer<Optimizer> trainer(rank, policy, make);
        if (first > 0) { sk::load(rank, sk::latest(rank, folder)->path, trainer.state); }
        for (std::size_t s = first; s < last; ++s) { trainer.step(s); }
        if (!folder.empty()) { sk::save(rank, folder, last, trainer.state); }
        const std::uint64_t its = trainer.hash();
        if (rank.rank() == 0) { hash = its; }
    });
    return hash;
}

template <class Optimizer, class Make>
void check_everywhere(const Make& make) {
    constexpr std::size_t steps = 12;
    const std::uint64_t alone = trained<Optimizer>(1, sk::DynamicPolicy(sk::NoShard{}), 0, steps, make);
    for (const std::size_t ranks : std::vector<std::size_t>{1, 2, 3, 5}) {
        for (const sk::DynamicPolicy& policy : policies()) {
            CAPTURE(ranks);
            CHECK(trained<Optimizer>(ranks, policy, 0, steps, make) == alone);
        }
    }
    CHECK(trained<Optimizer>(4, sk::DynamicPolicy(sk::HybridShard<2>{}), 0, steps, make) == alone);
    // A resume on another mesh and under another policy goes on as if nothing had happened.
    const Folder folder;
    trained<Optimizer>(3, sk::DynamicPolicy(sk::FullShard{}), 0, 5, make, folder.path());
    trained<Optimizer>(2, sk::DynamicPolicy(sk::NoShard{}), 5, 8, make, folder.path());
    CHECK(trained<Optimizer>(4, sk::DynamicPolicy(sk::ShardOptimizer{}), 8, steps, make, folder.path()) == alone);
}

template <sk::StateFormat Format>
using AdamW = sk::AdamW<Engine, sk::DefaultPrecision<float>, Format>;

template <sk::StateFormat Format>
AdamW<Format> adamw(const sk::Model<Engine>& model) {
    return {model, sk::states_in<Format>, {.learning_rate = 0.01}};
}

TEST_CASE("states in bf16 give the same bits on every mesh and policy, and after a resume elsewhere") {
    check_everywhere<AdamW<sk::StateFormat::bf16>>(adamw<sk::StateFormat::bf16>);
}

TEST_CASE("states in blocks of 8 bits give the same bits on every mesh and policy, and after a resume elsewhere") {
    check_everywhere<AdamW<sk::StateFormat::block8>>(adamw<sk::StateFormat::block8>);
}

TEST_CASE("Lion's, SGD's and AMSGrad's states are stored likewise, on two meshes") {
    const auto check = [](auto made) {
        using Optimizer = decltype(made(std::declval<const sk::Model<Engine>&>()));
        const std::uint64_t alone = trained<Optimizer>(1, sk::DynamicPolicy(sk::NoShard{}), 0, 5, made);
        CHECK(trained<Optimizer>(3, sk::DynamicPolicy(sk::FullShard{}), 0, 5, made) == alone);
    };
    check([](const sk::Model<Engine>& model) { return sk::Lion{model, sk::states_in<sk::StateFormat::block8>}; });
    check([](const sk::Model<Engine>& model) {
        return sk::SGD{model,
                       sk::states_in<sk::StateFormat::bf16>,
                       {.learning_rate = 0.1, .rule = sk::Momentum::nesterov, .momentum = 0.9}};
    });
    check([](const sk::Model<Engine>& model) {
        return sk::SGD{model, sk::states_in<sk::StateFormat::block8>, {.learning_rate = 0.1}};  // no states at all
    });
    check([](const sk::Model<Engine>& model) { return sk::AMSGrad{model, sk::states_in<sk::StateFormat::block8>}; });
}

TEST_CASE("states follow full ones: the parameters after 200 steps differ by a part of what they have moved") {
    const auto moved = [](auto made) {
        std::vector<double> values;
        sk::threads::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
            using Optimizer = decltype(made(std::declval<const sk::Model<Engine>&>()));
            Trainer<Optimizer> trainer(rank, sk::DynamicPolicy(sk::NoShard{}), made);
            for (std::size_t s = 0; s < 200; ++s) { trainer.step(s); }
            const auto window = trainer.layer.unshard();
            for (const float value : window.view(0)) { values.push_back(value); }
        });
        return values;
    };
    const std::vector<double> full =
        moved([](const sk::Model<Engine>& m) { return adamw<sk::StateFormat::full>(m); });
    const auto distance = [&](const std::vector<double>& other) {
        double sum = 0;
        double all = 0;
        for (std::size_t i = 0; i < full.size(); ++i) {
            const double begin = 0.01 * static_cast<double>(i % 31) - 0.15;
            sum += (other[i] - full[i]) * (other[i] - full[i]);
            all += (full[i] - begin) * (full[i] - begin);
        }
        return std::sqrt(sum / all);
    };
    const double in_bf16 =
        distance(moved([](const sk::Model<Engine>& m) { return adamw<sk::StateFormat::bf16>(m); }));
    const double in_8_bits =
        distance(moved([](const sk::Model<Engine>& m) { return adamw<sk::StateFormat::block8>(m); }));
    CHECK(in_bf16 > 0);
    CHECK(in_bf16 < 0.02);
    CHECK(in_8_bits > in_bf16);
    CHECK(in_8_bits < 0.2);
}

TEST_CASE("a plan counts the bytes of the states: 2 of an element in bf16, 1 and an eighth in blocks") {
    const auto group = sk::describe_group<Net, sk::FullShard>("layer", sk::Shapes<Net>{}, sk::DeviceMesh<4>{}.grid());
    const auto bytes = [&](sk::StateFormat format) {
        return sk::plan_memory(std::span(&group, 1), {.optimizer_states = {2, format}}).optimizer.value;
    };
    CHECK(bytes(sk::StateFormat::full) == 8 * group.shard_numel);
    CHECK(bytes(sk::StateFormat::bf16) == 4 * group.shard_numel);
    CHECK(bytes(sk::StateFormat::block8) == 2 * group.shard_numel + 2 * 4 * (group.shard_numel / 32));
}

TEST_CASE(
    "a checkpoint of states in blocks has codes and scales, and says so to an optimizer that stores otherwise") {
    const Folder folder;
    const auto make8 = adamw<sk::StateFormat::block8>;
    trained<AdamW<sk::StateFormat::block8>>(2, sk::DynamicPolicy(sk::FullShard{}), 0, 3, make8, folder.path());
    const auto refusal = [&](auto make) {
        using Optimizer = decltype(make(std::declval<const sk::Model<Engine>&>()));
        return thrown_message<sk::FileError>(
            [&] { trained<Optimizer>(1, sk::DynamicPolicy(sk::NoShard{}), 3, 4, make, folder.path()); });
    };
    CHECK(refusal(adamw<sk::StateFormat::full>).find("has elements of type U8, expected F64, F32, BF16 or F16") !=
          std::string::npos);
    // From full ones to bf16, and back: what is stored is read with the digits that there are.
    const Folder full;
    trained<AdamW<sk::StateFormat::full>>(2, sk::DynamicPolicy(sk::FullShard{}), 0, 3, adamw<sk::StateFormat::full>,
                                          full.path());
    const std::string message = thrown_message<sk::FileError>([&] {
        trained<AdamW<sk::StateFormat::block8>>(1, sk::DynamicPolicy(sk::NoShard{}), 3, 4, make8, full.path());
    });
    CHECK(message.find("has elements of type F32, expected U8: the optimizer keeps its states in blocks of 8 bits") !=
          std::string::npos);
    CHECK(trained<AdamW<sk::StateFormat::bf16>>(1, sk::DynamicPolicy(sk::NoShard{}), 3, 4,
                                                adamw<sk::StateFormat::bf16>, full.path()) != 0);
}

TEST_CASE("blocks are refused where they would depend on the mesh") {
    struct Rows : sk::Param<"rows", float, 6, 40>, sk::tp::Split<1> {};
    struct Columns : sk::Param<"columns", float, 8, 40>, sk::tp::Split<0> {};
    struct Both : sk::Param<"both", float, 6, 128>, sk::tp::Split<1> {};
    const auto made = [](auto group, sk::Packing packing) {
        return thrown_message<std::invalid_argument>([&] {
            sk::threads::run(sk::DeviceMesh<2, 2>{}, [&](auto& rank) {
                using Of = sk::Sharded<decltype(group), sk::FullShard, Engine>;
                Of layer{rank, "layer", sk::Shapes<decltype(group)>{}, typename Of::Options{.packing = packing}};
                sk::Model model{layer};
                sk::AdamW optimizer{model, sk::states_in<sk::StateFormat::block8>};
            });
        });
    };
    CHECK(made(Rows{}, sk::Packing::aligned).find("'layer.rows' is split over tp into rows of 20 elements") !=
          std::string::npos);
    CHECK(made(Columns{}, sk::Packing::aligned) == "nothing was thrown");  // 160 elements in one piece
    CHECK(made(Both{}, sk::Packing::aligned) == "nothing was thrown");
    CHECK(made(sk::Params<Bias, Columns>{}, sk::Packing::packed).find("Packing::aligned avoids") !=
          std::string::npos);
}

}  // namespace state_format_test
