// SPDX-License-Identifier: Apache-2.0
// fp32 masters as 16 bits beside bf16 parameters: the bits of fp32 masters in updates, checkpoints, averages and
// accesses to shards, on every mesh and policy.
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/core/split_float.hpp>
#include <shardkit/local_shards.hpp>
#include <shardkit/moving_average.hpp>
#include <shardkit/plan.hpp>
#include <shardkit/shardkit.hpp>

#include "temporary_folder.hpp"
#include "unit/thrown_message.hpp"

namespace split_master_test {

namespace sk = shardkit;
using sk::detail::SplitFloat;
using temporary_folder::Folder;

struct Weight : sk::Param<"weight", sk::bf16, 67, 12>, sk::tp::Split<1> {};
struct Bias : sk::Param<"bias", sk::bf16, 33> {};
struct Fixed : sk::Param<"fixed", sk::bf16, 5>, sk::Frozen {};
using Net = sk::Params<Weight, Bias, Fixed>;
using Layer = sk::Sharded<Net, sk::DynamicPolicy>;
using Masters = std::map<std::size_t, std::uint32_t>;  // by parameter and whole index

Layer::Options options(const sk::DynamicPolicy& policy, sk::MasterWeights master) {
    Layer::Options all{policy};
    all.master = master;
    return all;
}

template <sk::StateFormat Format>
struct Trainer {
    using Optimizer = sk::AdamW;

    Trainer(sk::Rank& rank, const sk::DynamicPolicy& policy, sk::MasterWeights master)
        : layer(rank, "layer", sk::Shapes<Net>{}, options(policy, master)),
          model{layer},
          optimizer(model, sk::states_in<Format>, {.learning_rate = 0.01}),
          state(model, optimizer) {
        layer.initialize([](auto, auto, std::size_t i) { return 0.0137 * static_cast<double>(i % 31) - 0.15; });
    }
    /// Gradients on data rank 0 alone, the same for both kinds of masters.
    void step(std::size_t number) {
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        const auto& grid = layer.rank().grid();
        const bool counts = grid.coordinate(sk::Dp::name, layer.rank().rank()) == 0;
        for (std::size_t p = 0; p < layer.parameters().size() && counts; ++p) {
            auto view = gradients.view(p);
            for (std::size_t i = 0; i < view.size(); ++i) {
                const std::size_t whole = layer.parameters()[p].part.whole_index(i);
                const double wave =
                    std::sin(0.37 * static_cast<double>(whole * (p + 1)) + static_cast<double>(number));
                view.data()[i] = sk::bf16(static_cast<float>(wave * 1e-2));
            }
        }
        accumulation.add(std::move(gradients));
        optimizer.step(sk::reduce(std::move(accumulation), sk::divide_by(1)));
    }
    Masters masters() {
        Masters all;
        sk::read_shards(layer, [&](auto run) {
            if (run.frozen) { return; }  // whose masters no checkpoint has
            for (std::size_t i = 0; i < run.values.size(); ++i) {
                const std::size_t whole = layer.parameters()[run.parameter].part.whole_index(run.range.begin + i);
                all[run.parameter * 10000 + whole] = std::bit_cast<std::uint32_t>(static_cast<float>(run.values[i]));
            }
        });
        return all;
    }

    Layer layer;
    sk::Model model;
    Optimizer optimizer;
    sk::checkpoint::State state;
};

struct Run {
    std::size_t dp = 1;
    std::size_t tp = 1;
    sk::DynamicPolicy policy{sk::FullShard{}};
    sk::MasterWeights master = sk::MasterWeights::split;
};

/// The masters after steps [first, last), from all ranks; every window shows their upper halves.
template <sk::StateFormat Format = sk::StateFormat::full>
Masters trained(const Run& of, std::size_t first, std::size_t last, const std::string& folder = {}) {
    Masters all;
    std::mutex mutex;
    sk::threads::run(sk::DeviceMesh<sk::dynamic, sk::dynamic>{of.dp, of.tp}, [&](auto& rank) {
        Trainer<Format> trainer(rank, of.policy, of.master);
        if (first > 0) { sk::checkpoint::load(rank, sk::checkpoint::latest(rank, folder)->path, trainer.state); }
        for (std::size_t s = first; s < last; ++s) { trainer.step(s); }
        if (!folder.empty()) { sk::checkpoint::save(rank, folder, last, trainer.state); }
        const Masters own = trainer.masters();
        const auto window = trainer.layer.unshard();
        for (std::size_t p = 0; p < trainer.layer.parameters().size() && of.master == sk::MasterWeights::split; ++p) {
            const auto view = window.view(p);
            for (std::size_t i = 0; i < view.size(); ++i) {
                const auto found = own.find(p * 10000 + trainer.layer.parameters()[p].part.whole_index(i));
                if (found == own.end()) { continue; }
                CHECK(view.data()[i].bits == SplitFloat::upper(std::bit_cast<float>(found->second)));
            }
        }
        const std::lock_guard lock(mutex);
        all.insert(own.begin(), own.end());
    });
    return all;
}

TEST_CASE("an fp32 number is its two halves, and the upper one is the nearest bf16 but for ties") {
    for (std::uint32_t upper = 0; upper < 65536; ++upper) {
        for (const std::uint32_t lower : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
            const auto number = std::bit_cast<float>(upper << 16U | lower);
            const std::uint16_t high = SplitFloat::upper(number);
            const float again = SplitFloat::joined(high, SplitFloat::lower(number));
            if (std::isnan(number)) {
                REQUIRE(std::isnan(again));
                REQUIRE(std::isnan(static_cast<float>(std::bit_cast<sk::bf16>(high))));
                continue;
            }
            REQUIRE(std::bit_cast<std::uint32_t>(again) == (upper << 16U | lower));
            const std::uint16_t nearest = sk::bf16(number).bits;
            REQUIRE(high - nearest == (lower == 0x8000U && upper % 2 == 0 ? 1 : 0));
        }
    }
}

TEST_CASE("split masters have the bits of fp32 masters, on every mesh and policy") {
    constexpr std::size_t steps = 12;
    const Masters kept =
        trained({.policy = sk::DynamicPolicy(sk::NoShard{}), .master = sk::MasterWeights::kept}, 0, steps);
    CHECK(kept.size() == 67 * 12 + 33);
    for (const sk::DynamicPolicy& policy :
         {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::FullShard{}),
          sk::DynamicPolicy(sk::ShardOptimizer{}), sk::DynamicPolicy(sk::ShardGradOp{})}) {
        for (const std::size_t dp : std::vector<std::size_t>{1, 2, 3}) {
            CAPTURE(dp);
            const Masters split = trained({.dp = dp, .policy = policy}, 0, steps);
            CHECK(split == kept);
        }
    }
    CHECK(trained({.dp = 2, .tp = 2}, 0, steps) == kept);
    const auto in8 = [](sk::MasterWeights master) {
        return trained<sk::StateFormat::block8>({.dp = 2, .master = master}, 0, steps);
    };
    CHECK(in8(sk::MasterWeights::split) == in8(sk::MasterWeights::kept));
}

TEST_CASE("a checkpoint has the masters as fp32 numbers, with and without the split, and goes on on another mesh") {
    constexpr std::size_t steps = 9;
    const Masters unbroken = trained({.master = sk::MasterWeights::kept}, 0, steps);
    const Folder folder;
    trained({.dp = 3}, 0, 3, folder.path());                                              // split
    trained({.dp = 2, .tp = 2, .master = sk::MasterWeights::kept}, 3, 6, folder.path());  // kept
    CHECK(trained({.dp = 2, .policy = sk::DynamicPolicy(sk::NoShard{})}, 6, steps, folder.path()) == unbroken);
}

TEST_CASE(
    "shards of split masters are read and written as fp32 numbers, and initial values are the same by kernels") {
    sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {
        for (const sk::DynamicPolicy& policy :
             {sk::DynamicPolicy(sk::FullShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
              sk::DynamicPolicy(sk::NoShard{})}) {
            Trainer<sk::StateFormat::full> trainer(rank, policy, sk::MasterWeights::split);
            const Masters by_host = trainer.masters();
            const auto value = [](std::uint64_t i) { return 0.0137 * static_cast<double>(i % 31) - 0.15; };
            trainer.layer.initialize([&](std::string_view, std::string_view) { return value; });
            CHECK(trainer.masters() == by_host);
            for (const auto& [index, bits] : by_host) {
                const auto expected = static_cast<float>(value(index % 10000));
                CHECK(bits == std::bit_cast<std::uint32_t>(expected));
            }
            sk::update_shards(trainer.layer, [&](auto run) {
                for (auto& each : run.values) {
                    each = static_cast<std::remove_reference_t<decltype(each)>>(1.0F + 0x1p-20F);
                }
            });
            for (const auto& [index, bits] : trainer.masters()) {
                CHECK(bits == std::bit_cast<std::uint32_t>(1.0F + 0x1p-20F));
            }
            const auto window = trainer.layer.unshard();
            for (const sk::bf16 shown : window[Weight{}]) { CHECK(static_cast<float>(shown) == 1); }
        }
    });
}

TEST_CASE("the average of split masters is that of kept ones") {
    struct Averaged : sk::Param<"weight", float, 67, 12> {};
    const auto average = [](sk::MasterWeights master) {
        std::vector<float> values;
        sk::threads::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
            struct Plain : sk::Param<"weight", sk::bf16, 67, 12> {};
            using Of = sk::Sharded<Plain, sk::FullShard>;
            typename Of::Options with;
            with.master = master;
            Of layer{rank, "layer", sk::Shapes<Plain>{}, with};
            layer.initialize([](auto, auto, std::size_t i) { return 0.0137 * static_cast<double>(i); });
            using To = sk::Sharded<Averaged, sk::FullShard, sk::Precision<float, sk::bf16>>;
            To to{rank, "average", {}, {.frozen = To::Group::all()}};
            sk::Model model{layer};
            sk::Model averages{to};
            sk::MovingAverage moving{averages, model};
            sk::AdamW optimizer{model};
            sk::Accumulation accumulation{model};
            accumulation.add_zero(layer);
            optimizer.step(std::move(accumulation));
            moving.update(0.5);
            sk::read_shards(to, [&](auto run) {
                for (const auto value : run.values) { values.push_back(static_cast<float>(value)); }
            });
        });
        return values;
    };
    CHECK(average(sk::MasterWeights::split) == average(sk::MasterWeights::kept));
}

TEST_CASE("a split is refused where there are no two halves") {
    const auto refusal = [](auto type, auto with) {
        using Element = decltype(type);
        struct One : sk::Param<"one", Element, 8> {};
        return thrown_message<std::invalid_argument>([&] {
            sk::threads::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
                using Of = sk::Sharded<One, sk::FullShard>;
                typename Of::Options all;
                all.master = sk::MasterWeights::split;
                all.stochastic_rounding = with;
                Of layer{rank, "layer", sk::Shapes<One>{}, all};
            });
        });
    };
    using Rounding = std::optional<sk::StochasticRounding>;
    CHECK(has(refusal(sk::fp16{}, Rounding{}), "MasterWeights::split with fp32 masters of fp16 parameters"));
    CHECK(has(refusal(float{}, Rounding{}), "MasterWeights::split with fp32 masters of fp32 parameters"));
    CHECK(has(refusal(sk::bf16{}, Rounding{{.seed = 1}}), "parameters with a master, expected"));
    const auto group = sk::describe_group<Net, sk::FullShard>(
        "layer", sk::Shapes<Net>{}, sk::DeviceMesh<2>{}.grid(),
        sk::ShardedOptions<Net, sk::FullShard>{.master = sk::MasterWeights::split});
    CHECK(sk::planner::plan_memory(std::span(&group, 1)).master.value == 2 * group.shard_numel);
}

}  // namespace split_master_test
