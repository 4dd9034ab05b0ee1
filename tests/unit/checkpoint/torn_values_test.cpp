// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/reduce.hpp>

#include "temporary_folder.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace torn_values_test {

namespace {

struct Weight : sk::Param<"weight", float, 500> {};
struct Bias : sk::Param<"bias", float, 40> {};
using Group = sk::Params<Weight, Bias>;

template <class Rank, class Precision>
using Layer = sk::Sharded<Group, sk::DynamicPolicy, Precision>;

/// `large` in the last element of the bias, which the last rank has.
template <class L>
void fill(L& layer, double large) {
    layer.initialize([large](std::string_view, std::string_view name, std::uint64_t i) {
        return name == "bias" && i == 39 ? large : 0.5 * static_cast<double>(i % 9);
    });
}
template <class L, class Optimizer>
void step(L& layer, Optimizer& optimizer) {
    sk::Accumulation accumulation{sk::Model{layer}};
    auto gradients = accumulation.gradients(layer);
    gradients[Weight{}][3] = static_cast<typename L::Precision::Gradient>(1.0F);
    accumulation.add(std::move(gradients));
    optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
}
/// What a step of it is refused with.
template <class L>
std::string refused_step(L& layer) {
    return thrown_message<sk::UsageError>([&] { sk::Accumulation accumulation{sk::Model{layer}}; });
}
template <class L>
std::vector<float> values_of(L& layer) {
    std::vector<float> values(540);
    const auto window = layer.unshard();
    for (std::size_t i = 0; i < 500; ++i) { values[i] = static_cast<float>(window[Weight{}][i]); }
    for (std::size_t i = 0; i < 40; ++i) { values[500 + i] = static_cast<float>(window[Bias{}][i]); }
    return values;
}

const std::vector<sk::DynamicPolicy>& policies() {
    static const std::vector<sk::DynamicPolicy> all{
        sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::FullShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
        sk::DynamicPolicy(sk::ShardGradOp{})};
    return all;
}

/// A byte of a file becomes another one.
void damage(const std::string& path, std::streamoff from_end) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-from_end, std::ios::end);
    const int byte = file.get();
    file.seekp(-from_end, std::ios::end);
    file.put(static_cast<char>(byte ^ 1));
}

}  // namespace

TEST_CASE("after a load that threw half way nothing trains, shows or saves the group until it was written again") {
    const temporary_folder::Folder folder;
    for (const sk::DynamicPolicy& policy : policies()) {
        CAPTURE(policy.name());
        std::vector<std::vector<float>> at_end(2);
        sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            using Rank = decltype(rank);
            const std::string bad = folder.file(std::string(policy.name()) + "-bad");
            const std::string good = folder.file(std::string(policy.name()) + "-good");
            Layer<Rank, sk::Precision<float>> source(rank, "layer", {}, {policy});
            for (const auto& [path, large] : {std::pair{bad, 1e30}, std::pair{good, 3.0}}) {
                fill(source, large);
                sk::checkpoint::save(rank, path, 1, sk::checkpoint::State{sk::Model{source}});
            }
            // Without a master, so that the parameters' own type cannot hold it.
            Layer<Rank, sk::Precision<sk::fp16>> layer(rank, "layer", {},
                                                       {.policy = policy, .master = sk::MasterWeights::none});
            fill(layer, 1);
            const sk::Model model{layer};
            sk::checkpoint::State state{model};
            CHECK_THROWS_AS(sk::checkpoint::load(rank, bad + "/step-00000001", state), sk::FileError);

            const std::string text = refused_step(layer);
            CHECK(has(text, "'layer': a step begins, but the load at "));
            CHECK(has(text, "torn_values_test.cpp:"));
            CHECK(has(text,
                      " ended with an error before 'weight' had its parameter and others theirs; expected a load"));
            CHECK(has(thrown_message<sk::UsageError>([&] { static_cast<void>(layer.unshard()); }),
                      "'layer': unshard, but the load at "));
            CHECK(has(thrown_message<sk::UsageError>([&] { sk::checkpoint::save(rank, bad, 2, state); }),
                      "'layer': save, but the load at "));
            // Half of it is not all of it.
            layer.load(Weight{}, std::vector<float>(500, 0.25F));
            CHECK(has(refused_step(layer), "before 'bias' had its parameter; expected"));
            if (policy.name() == "no_shard") {
                fill(layer, 3);
            } else {
                sk::checkpoint::load(rank, good + "/step-00000001", state);
            }
            sk::AdamW optimizer{model, {.learning_rate = 0.5, .weight_decay = 0}};
            step(layer, optimizer);
            at_end[rank.rank()] = values_of(layer);
        });
        CHECK(at_end[0] == at_end[1]);
        CHECK(at_end[0][539] == 3);
        CHECK(at_end[0][3] == 1);  // 1.5 without 0.5
    }
}

TEST_CASE("states of a damaged checkpoint: initialize does not make them whole, a load or a new optimizer does") {
    const temporary_folder::Folder folder;
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        Layer<decltype(rank), sk::Precision<float>> layer(rank, "layer", {}, {sk::DynamicPolicy(sk::FullShard{})});
        fill(layer, 1);
        const sk::Model model{layer};
        sk::AdamW optimizer{model};
        step(layer, optimizer);
        std::vector<std::uint8_t> blob{1};
        sk::checkpoint::State state{model, optimizer};
        state.blob("sampler", blob);
        sk::checkpoint::save(rank, folder.path(), 1, state);
        blob = {2};
        sk::checkpoint::save(rank, folder.path(), 2, state);
        const std::string path = folder.file("step-00000001");
        if (rank.rank() == 0) { damage(path + "/state/exp_avg.safetensors", 5); }
        sk::barrier(rank.world(), rank.communication_stream());
        CHECK_THROWS_AS(sk::checkpoint::load(rank, path, state), sk::FileError);
        CHECK(blob == std::vector<std::uint8_t>{2});
        fill(layer, 1);
        CHECK(has(refused_step(layer), "had its exp_avg"));
        sk::checkpoint::load(rank, folder.file("step-00000002"), state);
        CHECK_NOTHROW(step(layer, optimizer));
        CHECK_THROWS_AS(sk::checkpoint::load(rank, path, state), sk::FileError);
        fill(layer, 1);
        CHECK(has(refused_step(layer), "a new optimizer"));
        sk::AdamW another{model};
        CHECK_NOTHROW(step(layer, another));
    });
}

TEST_CASE("an initialize whose function throws on one rank: that rank refuses the step, the others learn of it") {
    std::string refused;
    CHECK_THROWS(sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        Layer<decltype(rank), sk::Precision<float>> layer(rank, "layer", {},
                                                          {sk::DynamicPolicy(sk::ShardOptimizer{})});
        fill(layer, 1);
        sk::AdamW optimizer{sk::Model{layer}};
        try {
            layer.initialize([&](std::string_view, std::string_view name, std::uint64_t i) {
                if (rank.rank() == 1 && name == "bias" && i == 7) { throw std::runtime_error("no value"); }
                return 0.0;
            });
        } catch (const std::runtime_error&) { refused = refused_step(layer); }
        step(layer, optimizer);
    }));
    CHECK(has(refused, "'layer': a step begins, but the initialize at "));
}

}  // namespace torn_values_test
