// SPDX-License-Identifier: Apache-2.0
// Groups whose gathers carry 8-bit codes with scales: the same bits on every mesh, bounds against the masters, codes
// that follow every kind of write, and what a plan says.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/local_shards.hpp>
#include <shardkit/moving_average.hpp>
#include <shardkit/muon.hpp>
#include <shardkit/plan.hpp>
#include <shardkit/schedule.hpp>
#include <shardkit/shardkit.hpp>

#include "faults/faulty.hpp"
#include "temporary_folder.hpp"
#include "unit/sharded/coded_training.hpp"
#include "unit/thrown_message.hpp"

namespace coded_gathers_test {

namespace {

namespace sk = shardkit;
using coded_training::List;
using coded_training::Mesh;
template <class Code>
using Layer = coded_training::Layer<Code>;

struct Part : sk::Param<"part", float, 4, 64>, sk::tp::Split<0> {};
struct Whole : sk::Param<"whole", float, 40> {};
using Group = sk::Params<Part, Whole>;
struct Fixed : sk::Param<"fixed", float, 8>, sk::Frozen {};

const auto at_once = [](const auto& stream, const auto& work) { stream.submit(work); };

bool divides(std::size_t ranks, const sk::DynamicPolicy& policy) {
    return ranks % 2 == 0 || policy.name() != sk::HybridShard<2>::name;
}
/// Calls check(ranks, policy) for each of the policies, on those numbers of ranks that it has.
template <class Check>
void each_run(std::initializer_list<std::size_t> numbers, const Check& check) {
    for (const sk::DynamicPolicy& policy : coded_training::policies) {
        for (const std::size_t ranks : numbers) {
            if (!divides(ranks, policy)) { continue; }
            CAPTURE(ranks);
            CAPTURE(std::string(policy.name()));
            check(ranks, policy);
        }
    }
}

/// What a window must show of these masters, by the definition of the formats in fp64: each number within its bound,
/// and the scale that the largest magnitude of its parameter or block gives.
template <class Code, class Of>
void check_window(Of& layer, const std::map<std::string, std::vector<float>>& masters) {
    const auto window = layer.unshard();
    for (const auto& each : masters) {
        const std::string& name = each.first;
        const std::vector<float>& values = each.second;
        CAPTURE(name);
        const auto shown = window.view(name);
        REQUIRE(shown.size() == values.size());
        const std::size_t block = std::is_same_v<Code, sk::e4m3> ? values.size() : 64;
        REQUIRE(shown.scales().size() == (values.size() + block - 1) / block);
        std::size_t wrong = 0;
        for (std::size_t begin = 0; begin < values.size(); begin += block) {
            const std::size_t end = std::min(begin + block, values.size());
            double largest = 0;
            for (std::size_t i = begin; i < end; ++i) {
                largest = std::max(largest, std::abs(static_cast<double>(values[i])));
            }
            const auto scale = static_cast<double>(shown.scales()[begin / block]);
            if constexpr (std::is_same_v<Code, sk::e4m3>) {
                CHECK(scale == (largest == 0 ? 0x1p-126 : std::exp2(std::ceil(std::log2(largest / 448)))));
            } else {
                CHECK(scale == static_cast<double>(static_cast<float>(largest) / 127));
            }
            for (std::size_t i = begin; i < end; ++i) {
                const auto master = static_cast<double>(values[i]);
                const double bound = std::is_same_v<Code, sk::e4m3> ? std::max(std::abs(master) / 16, scale * 0x1p-10)
                                                                    : scale * (0.5 + 1e-5);
                wrong += std::abs(static_cast<double>(shown.decoded(i)) - master) <= bound ? 0U : 1U;
            }
        }
        CHECK(wrong == 0);
    }
}

/// The masters of all ranks.
template <class Code, class Of>
std::map<std::string, std::vector<float>> masters_of(Of& layer) {
    auto& rank = layer.rank();
    std::map<std::string, std::vector<float>> all;
    for (const auto& [name, size] : coded_training::sizes) {
        std::vector<double> own(size, -std::numeric_limits<double>::infinity());
        sk::read_shards(layer, [&, &wanted = name](auto run) {
            if (run.name != wanted) { return; }
            for (std::size_t i = 0; i < run.values.size(); ++i) {
                own[run.range.begin + i] = static_cast<double>(run.values[i]);
            }
        });
        sk::all_reduce(rank.world(), sk::ReduceOp::max, std::span<const double>(own), std::span<double>(own));
        all[name].assign(own.begin(), own.end());
    }
    return all;
}

template <class Code>
void check_every_mesh() {
    const std::vector<float> expected = coded_training::expected<Code>();
    CHECK(std::any_of(expected.begin(), expected.end(), [](float value) { return value != 0; }));
    each_run({1, 2, 3, 5, 8}, [&](std::size_t ranks, const sk::DynamicPolicy& policy) {
        sk::threads::run(Mesh(ranks, 1, 1),
                         [&](auto& rank) { CHECK(coded_training::train<Code>(rank, policy, at_once) == expected); });
    });
}

template <class Code>
void train_one(sk::Model& model, coded_training::Layer<Code>& layer, sk::Optimizer& optimizer,
               sk::StepOptions options = {}, float value = 1) {
    sk::Accumulation accumulation{model};
    auto gradients = accumulation.gradients(layer);
    for (const auto& [name, size] : coded_training::sizes) {
        for (float& each : gradients.view(name)) { each = value; }
    }
    accumulation.add(std::move(gradients));
    optimizer.step(std::move(accumulation), options);
}

/// Writes the masters in every way that there is, and looks at a window behind each.
template <class Code>
void check_writes(std::size_t ranks, const sk::DynamicPolicy& policy) {
    const temporary_folder::Folder folder;
    sk::threads::run(Mesh(ranks, 1, 1), [&](auto& rank) {
        Layer<Code> layer(rank, "layer", coded_training::tensors(), {policy});
        sk::Model model{layer};
        sk::AdamW optimizer{model, {.learning_rate = 0.5}};
        sk::checkpoint::State state(model, optimizer);
        const auto check = [&](const char* behind) {
            CAPTURE(std::string(behind));
            check_window<Code>(layer, masters_of<Code>(layer));
        };
        check("the construction");
        layer.initialize([](auto, auto, auto i) { return coded_training::initial(i); });
        check("initialize by the host");
        layer.initialize(sk::InitialValues::normal(0, 1, 3));
        check("initialize by a kernel");
        std::vector<float> given(33);
        for (std::size_t i = 0; i < given.size(); ++i) { given[i] = 100.0F / static_cast<float>(i + 1); }
        layer.load("bias", given);
        check("load of one parameter");
        CHECK(masters_of<Code>(layer).at("bias") == given);
        train_one<Code>(model, layer, optimizer);
        check("a step");
        sk::LossScale scale{rank, {.initial = 4}};
        train_one<Code>(model, layer, optimizer, {.loss_scale = &scale}, std::numeric_limits<float>::infinity());
        CHECK(scale.skipped());
        check("a step that the loss scale skips");
        train_one<Code>(model, layer, optimizer, {.max_norm = 0.5, .loss_scale = &scale}, 8);
        check("a clipped step");
        sk::update_shards(layer, [](auto run) {
            for (float& value : run.values) { value = 3 * value - 1; }
        });
        check("update_shards");
        sk::checkpoint::save(rank, folder.path(), 1, state);
        const auto saved = masters_of<Code>(layer);
        std::vector<float> shown(67 * 13);
        layer.read_full("weight", shown);
        train_one<Code>(model, layer, optimizer);
        CHECK(masters_of<Code>(layer) != saved);
        sk::checkpoint::load(rank, sk::checkpoint::latest(rank, folder.path())->path, state);
        CHECK(masters_of<Code>(layer) == saved);
        check("the load of a checkpoint");
        // Behind a step whose codes no window has gathered.
        train_one<Code>(model, layer, optimizer);
        sk::update_shards(layer, [](auto run) {
            for (float& value : run.values) { value = 50 * value + 7; }
        });
        check("update_shards behind a step");
        train_one<Code>(model, layer, optimizer);
        layer.load("bias", std::vector<float>(33, 1e4F));
        check("load of one parameter behind a step");
        train_one<Code>(model, layer, optimizer);
        layer.initialize(sk::InitialValues::normal(0, 30, 4));
        check("initialize behind a step");
        train_one<Code>(model, layer, optimizer, {.loss_scale = &scale}, std::numeric_limits<float>::infinity());
        CHECK(scale.skipped());
        check("a step that the loss scale skips, behind a write");
        train_one<Code>(model, layer, optimizer);
        train_one<Code>(model, layer, optimizer);
        check("two steps");
        sk::checkpoint::load(rank, sk::checkpoint::latest(rank, folder.path())->path, state);
        train_one<Code>(model, layer, optimizer);
        sk::checkpoint::load(rank, sk::checkpoint::latest(rank, folder.path())->path, state);
        check("the load of a checkpoint behind a step");
        std::vector<float> again(67 * 13);
        layer.read_full("weight", again);
        CHECK(again == shown);
        Layer<Code> averages(rank, "averages", coded_training::tensors(), {policy});
        sk::Model averaged{averages};
        sk::MovingAverage average{averaged, model};
        average.update(0.0);
        CHECK(masters_of<Code>(averages) == saved);
        check_window<Code>(averages, saved);
    });
}

/// That a gather behind an update does not look for the largest masters: one that is written behind the library's
/// back changes no scale, and a code of its block alone where an update has not made it.
template <class Code>
void check_found_by_update(std::size_t ranks, const sk::DynamicPolicy& policy) {
    sk::threads::run(Mesh(ranks, 1, 1), [&](auto& rank) {
        Layer<Code> layer(rank, "layer", coded_training::tensors(), {policy});
        layer.load("weight", std::vector<float>(67 * 13, 1));
        float* hidden = nullptr;
        sk::update_shards(layer, [&](auto run) {
            if (run.name == "weight") { hidden = run.values.data(); }
        });
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 0.5}};
        train_one<Code>(model, layer, optimizer);
        if (hidden != nullptr) { *hidden = 1e6F; }
        {
            const auto window = layer.unshard();
            const auto shown = window.view("weight");
            CHECK(shown.scales()[0] == (std::is_same_v<Code, sk::e4m3> ? 0x1p-9F : 0.5F / 127));
            const auto value = static_cast<double>(shown.decoded(0));
            if (std::is_same_v<Code, sk::e4m3>) {
                CHECK(std::isnan(value));
            } else {
                CHECK(value == doctest::Approx(0.5));
            }
        }
        if (hidden != nullptr) { *hidden = 0.25; }
    });
}

/// Trains a step on two ranks, and fails in the call of that number. Where it is one of the gather behind the step,
/// gathers again, and adds one to `gathers`. Returns whether there was such a call.
template <class Code>
bool fail_in(std::uint64_t call, const sk::DynamicPolicy& policy, std::size_t& gathers) {
    using planted::FaultKind;
    planted::Faults faults({{0, FaultKind::error, call}, {1, FaultKind::error, call}});
    const auto train = [&](auto& rank) {
        coded_training::Layer<Code> layer(rank, "layer", coded_training::tensors(), {policy});
        layer.initialize([](auto, auto, auto i) { return coded_training::initial(i); });
        sk::Model model{layer};
        sk::AdamW optimizer{model, {.learning_rate = 0.5}};
        train_one<Code>(model, layer, optimizer);
        try {
            const auto window = layer.unshard();
        } catch (const planted::PlantedFault&) {
            gathers += rank.rank() == 0 ? 1U : 0U;
            check_window<Code>(layer, masters_of<Code>(layer));
        }
    };
    try {
        sk::threads::run(Mesh(2, 1, 1),
                         [&](auto& rank) { planted::with_faults(rank, faults, [&](auto& its) { train(its); }); });
    } catch (const planted::PlantedFault&) {}  // in a call of before or after
    return !faults.struck().empty();
}

template <class Code>
void check_bad_number() {
    sk::threads::run(Mesh(3, 1, 1), [](auto& rank) {
        Layer<Code> layer(rank, "layer", coded_training::tensors(), {sk::DynamicPolicy(sk::FullShard{})});
        std::vector<float> bias(33, 1);
        layer.load("bias", bias);
        std::vector<float> weight(67 * 13, 1);
        for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
            weight[700] = bad;
            layer.load("weight", weight);
            const auto window = layer.unshard();
            CHECK(std::isnan(window.view("weight").decoded(700)));
            CHECK(std::isnan(window.view("weight").decoded(703)));  // of its block, and of its parameter
            CHECK(std::isnan(window.view("weight").decoded(0)) == std::is_same_v<Code, sk::e4m3>);
            CHECK(window.view("bias").decoded(5) == doctest::Approx(1));
        }
    });
}

/// What plans say for a group on so many ranks, which is what a step moves.
template <class Code>
void check_plan(std::size_t ranks, const sk::DynamicPolicy& policy) {
    CAPTURE(ranks);
    CAPTURE(std::string(policy.name()));
    sk::threads::run(Mesh(ranks, 1, 1), [&](auto& rank) {
        Layer<Code> layer(rank, "layer", coded_training::tensors(), {policy});
        sk::Model model{layer};
        sk::AdamW optimizer{model};
        std::uint64_t moved = 0;
        std::uint64_t calls = 0;
        for (int step = 0; step < 2; ++step) {
            rank.traffic().clear();
            sk::Accumulation accumulation{model, 2};
            for (int microbatch = 0; microbatch < 2; ++microbatch) {
                for (int window = 0; window < 2; ++window) { const auto opened = layer.unshard(); }
                accumulation.add(accumulation.gradients(layer));
            }
            optimizer.step(std::move(accumulation));
        }
        for (const auto& entry : rank.traffic().entries()) {
            if (entry.verb != sk::Verb::all_gather) { continue; }
            moved += entry.moved.value;
            calls += entry.calls;
        }
        const sk::Plan plan = sk::plan(model, {.microbatches = 2});
        std::uint64_t planned = 0;
        std::uint64_t planned_calls = 0;
        for (const auto& row : plan.traffic.rows()) {
            if (row.verb != sk::Verb::all_gather) { continue; }
            planned += row.traffic.moved.value;
            planned_calls += row.traffic.calls;
        }
        CHECK(planned == moved);
        CHECK(planned_calls == calls);
    });
}

}  // namespace

TEST_CASE("codes train to the same bits on every mesh and policy") {
    check_every_mesh<sk::e4m3>();
    check_every_mesh<sk::block_int8>();
}

TEST_CASE("codes and scales belong to the masters behind every kind of write") {
    each_run({1, 2, 3}, [](std::size_t ranks, const sk::DynamicPolicy& policy) {
        check_writes<sk::e4m3>(ranks, policy);
        check_writes<sk::block_int8>(ranks, policy);
    });
}

TEST_CASE("the update finds the largest masters, and makes the codes of blocks") {
    each_run({1, 3}, [](std::size_t ranks, const sk::DynamicPolicy& policy) {
        check_found_by_update<sk::e4m3>(ranks, policy);
        check_found_by_update<sk::block_int8>(ranks, policy);
    });
}

TEST_CASE("a gather that fails leaves no codes half made that a later one would send") {
    const auto check = []<class Code>(Code, const sk::DynamicPolicy& policy) {
        CAPTURE(std::string(policy.name()));
        std::size_t gathers = 0;
        for (std::uint64_t call = 0; fail_in<Code>(call, policy, gathers); ++call) {}
        // Of the magnitudes and of the codes, or of the codes and of their scales.
        CHECK(gathers == (policy.name() == sk::NoShard::name ? 0 : 2));
    };
    for (const sk::DynamicPolicy& policy : coded_training::policies) {
        check(sk::e4m3{}, policy);
        check(sk::block_int8{}, policy);
    }
}

TEST_CASE("codes belong to the masters behind rules that share a group, whichever is the last") {
    const auto check = []<class Code>(Code, std::size_t ranks, const sk::DynamicPolicy& policy) {
        sk::threads::run(Mesh(ranks, 1, 1), [&](auto& rank) {
            Layer<Code> layer(rank, "layer", coded_training::tensors(), {policy});
            layer.initialize([](auto, auto, auto i) { return coded_training::initial(i); });
            sk::Model model{layer};
            sk::Muon muon{model, {.learning_rate = 5}, {.learning_rate = 0.5}};
            sk::CombinedOptimizer turned{model, {muon.rest(), muon.matrices()}};
            for (const int steps : {1, 2}) {
                for (const bool turns : {false, true}) {
                    CAPTURE(turns);
                    for (int step = 0; step < steps; ++step) {
                        const float value = 100.0F * static_cast<float>(step + 1);
                        if (turns) {
                            train_one<Code>(model, layer, turned, {}, value);
                        } else {
                            train_one<Code>(model, layer, muon, {}, value);
                        }
                    }
                    check_window<Code>(layer, masters_of<Code>(layer));
                }
            }
        });
    };
    each_run({1, 3}, [&](std::size_t ranks, const sk::DynamicPolicy& policy) {
        check(sk::e4m3{}, ranks, policy);
        check(sk::block_int8{}, ranks, policy);
    });
}

TEST_CASE("groups of both codes in one model have codes of their own behind a step") {
    each_run({1, 3}, [](std::size_t ranks, const sk::DynamicPolicy& policy) {
        sk::threads::run(Mesh(ranks, 1, 1), [&](auto& rank) {
            Layer<sk::e4m3> floats(rank, "floats", coded_training::tensors(), {policy});
            Layer<sk::block_int8> integers(rank, "integers", coded_training::tensors(), {policy});
            sk::Model model{floats, integers};
            model.initialize([](auto, auto, auto i) { return coded_training::initial(i); });
            sk::AdamW optimizer{model, {.learning_rate = 0.5}};
            sk::Accumulation accumulation{model};
            const auto add = [&](auto& layer) {
                auto gradients = accumulation.gradients(layer);
                for (const auto& [name, size] : coded_training::sizes) {
                    for (float& each : gradients.view(name)) { each = 1; }
                }
                accumulation.add(std::move(gradients));
            };
            add(floats);
            add(integers);
            optimizer.step(std::move(accumulation));
            check_window<sk::e4m3>(floats, masters_of<sk::e4m3>(floats));
            check_window<sk::block_int8>(integers, masters_of<sk::block_int8>(integers));
        });
    });
}

TEST_CASE("an infinite or NaN master makes all values NaN that share its scale") {
    check_bad_number<sk::e4m3>();
    check_bad_number<sk::block_int8>();
}

TEST_CASE("parameters that are split over tp have a scale for each part, and are read whole") {
    sk::threads::run(Mesh(2, 2, 1), [](auto& rank) {
        sk::Sharded<Group, sk::FullShard, sk::Precision<sk::e4m3, float>> layer{rank, "layer"};
        layer.initialize([](auto, auto, auto i) { return i < 128 ? 0.25 : 100.0; });
        std::vector<float> read(256);
        layer.read_full(Part{}, read);
        for (std::size_t i = 0; i < read.size(); ++i) {
            CHECK(static_cast<double>(read[i]) == doctest::Approx(i < 128 ? 0.25 : 100.0).epsilon(1.0 / 16));
        }
        const std::size_t tp = rank.grid().coordinate(sk::Tp::name, rank.rank());
        const auto window = layer.unshard();
        CHECK(window[Part{}].scales()[0] == (tp == 0 ? 0x1p-10F : 0.25F));
        CHECK(window[Whole{}].codes().size() == 40);
    });
}

TEST_CASE("a plan counts one byte an element, and the scales") {
    each_run({1, 2, 3}, [](std::size_t ranks, const sk::DynamicPolicy& policy) {
        check_plan<sk::e4m3>(ranks, policy);
        check_plan<sk::block_int8>(ranks, policy);
    });
    const auto describe = []<class Precision, class Policy>(Precision, Policy) {
        return sk::describe_group<List, Policy, Precision>("layer", coded_training::tensors(),
                                                           sk::DeviceMesh<4>{}.grid());
    };
    const auto memory = [](const sk::planner::GroupDescription& group) {
        return sk::planner::plan_memory(std::span(&group, 1));
    };
    using Codes = sk::Precision<sk::e4m3, float>;
    using Blocks = sk::Precision<sk::block_int8, float>;
    const auto full = describe(Codes{}, sk::FullShard{});
    const auto blocks = describe(Blocks{}, sk::FullShard{});
    CHECK(memory(full).gather_buffers.value == full.buffer_numel);
    CHECK(memory(full).parameters.value == full.shard_numel + 3 * 4 * (1 + 4));
    CHECK(memory(blocks).gather_buffers.value == blocks.buffer_numel + 4 * blocks.buffer_numel / 64);
    CHECK(memory(blocks).parameters.value == blocks.shard_numel + 4 * blocks.shard_numel / 64);
    CHECK(memory(describe(Blocks{}, sk::NoShard{})).parameters.value ==
          describe(Blocks{}, sk::NoShard{}).buffer_numel / 64 * 68);
    CHECK(memory(blocks).master.value == 4 * blocks.shard_numel);
}

TEST_CASE("a step of codes follows a schedule, whose gathers make the codes, with the bits of none") {
    const auto check = []<class Code>(Code) {
        const std::vector<float> expected = [] {
            std::vector<float> values(67 * 13);
            sk::threads::run(Mesh(2, 1, 1), [&](auto& rank) {
                Layer<Code> layer(rank, "layer", coded_training::tensors(), {sk::DynamicPolicy(sk::FullShard{})});
                layer.initialize([](auto, auto, auto i) { return coded_training::initial(i); });
                sk::Model model{layer};
                sk::AdamW optimizer{model, {.learning_rate = 0.5}};
                for (int step = 0; step < 3; ++step) { train_one<Code>(model, layer, optimizer); }
                layer.read_full("weight", values);
            });
            return values;
        }();
        for (const sk::DynamicPolicy& policy : coded_training::policies) {
            CAPTURE(std::string(policy.name()));
            sk::threads::run(Mesh(2, 1, 1), [&](auto& rank) {
                Layer<Code> layer(rank, "layer", coded_training::tensors(), {policy});
                layer.initialize([](auto, auto, auto i) { return coded_training::initial(i); });
                sk::Model model{layer};
                sk::AdamW optimizer{model, {.learning_rate = 0.5}};
                const auto whole = [&] {
                    sk::Accumulation accumulation{model};
                    { const auto opened = layer.unshard(); }
                    auto gradients = accumulation.gradients(layer);
                    for (const auto& [name, size] : coded_training::sizes) {
                        for (float& each : gradients.view(name)) { each = 1; }
                    }
                    accumulation.add(std::move(gradients));
                    optimizer.step(std::move(accumulation));
                };
                const auto groups = sk::describe_groups(model);
                const sk::Schedule schedule = sk::schedule::record(model, whole);
                CHECK(sk::schedule::check(schedule, groups).empty());
                {
                    const auto following = sk::schedule::follow(model, sk::schedule::prefetch(schedule, groups, 1));
                    whole();
                    whole();
                }
                std::vector<float> values(67 * 13);
                layer.read_full("weight", values);
                CHECK(values == expected);
            });
        }
    };
    check(sk::e4m3{});
    check(sk::block_int8{});
}

TEST_CASE("a checkpoint holds the masters: it loads on another mesh, and as another type") {
    const temporary_folder::Folder folder;
    std::vector<float> expected(67 * 13);
    sk::threads::run(Mesh(3, 1, 1), [&](auto& rank) {
        Layer<sk::e4m3> layer(rank, "layer", coded_training::tensors(), {sk::DynamicPolicy(sk::FullShard{})});
        layer.initialize([](auto, auto, auto i) { return coded_training::initial(i); });
        sk::Model model{layer};
        sk::checkpoint::save(rank, folder.path(), 1, sk::checkpoint::State(model));
        std::vector<float> own(67 * 13);
        layer.read_full("weight", own);
        if (rank.rank() == 0) { expected = own; }
    });
    sk::threads::run(Mesh(2, 1, 1), [&](auto& rank) {
        const std::string path = sk::checkpoint::latest(rank, folder.path())->path;
        Layer<sk::e4m3> layer(rank, "layer", coded_training::tensors(), {sk::DynamicPolicy(sk::ShardOptimizer{})});
        sk::Model model{layer};
        sk::checkpoint::load(rank, path, sk::checkpoint::State(model));
        std::vector<float> values(67 * 13);
        layer.read_full("weight", values);
        CHECK(values == expected);
        sk::Sharded<List, sk::FullShard> full{rank, "layer", coded_training::tensors()};
        sk::Model of_fp32{full};
        sk::checkpoint::load(rank, path, sk::checkpoint::State(of_fp32));
        full.read_full("weight", values);
        for (std::size_t i = 0; i < values.size(); ++i) {
            CHECK(values[i] == static_cast<float>(coded_training::initial(i)));
        }
    });
}

TEST_CASE("codes are refused where no masters, no blocks or no own memory are") {
    sk::threads::run(Mesh(1, 1, 1), [](auto& rank) {
        using Frozen = sk::Sharded<Fixed, sk::FullShard, sk::Precision<sk::e4m3, float>>;
        CHECK(has(thrown_message<std::invalid_argument>([&] { const Frozen layer(rank, "layer"); }),
                  "'layer': gathered codes of a group that is frozen whole, which has no masters to make them of; "
                  "expected a trained parameter, or the codes as std::byte"));
        using Of = Layer<sk::block_int8>;
        const auto made = [&](Of::Options options) {
            return thrown_message<std::invalid_argument>(
                [&] { const Of layer(rank, "layer", coded_training::tensors(), options); });
        };
        const sk::DynamicPolicy policy(sk::FullShard{});
        CHECK(has(made({.policy = policy, .packing = sk::Packing::packed}),
                  "'layer': gathered codes, and a packing that puts elements of two parameters into one block; "
                  "expected Packing::aligned"));
        CHECK(has(made({.policy = policy, .master = sk::MasterWeights::none}), "'layer': MasterWeights::none with"));
        CHECK(
            has(made({.policy = policy, .master = sk::MasterWeights::split}), "'layer': MasterWeights::split with"));
        CHECK(has(made({.policy = policy, .stochastic_rounding = {{.seed = 1}}}), "'layer': stochastic rounding of"));
    });
}

}  // namespace coded_gathers_test
