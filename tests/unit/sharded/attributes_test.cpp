// SPDX-License-Identifier: Apache-2.0
// What is chosen for a parameter besides its shape, on its type, in a list or in options, and what follows from it.
#include <shardkit/param/attributes.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/policies.hpp>

namespace sk = shardkit;

namespace attributes_test {

namespace {

struct Weight : sk::Param<"weight", float, 40, 3> {};
struct Bias : sk::Param<"bias", float, 40>, sk::NoDecay {};
struct Norm : sk::Param<"norm", float, 7>, sk::tp::PartialSum, sk::NoDecay {};
struct Table : sk::Param<"table", float, 5>, sk::Frozen {};
using Stated = sk::Params<Weight, Bias, Norm, Table>;

static_assert(sk::detail::attributes_of<Weight> == sk::ParameterAttributes{});
static_assert(Stated::attributes[1] == sk::ParameterAttributes{.decay = false});
static_assert(Stated::attributes[2] == sk::ParameterAttributes{.tp = sk::tp::PartialSum::placement, .decay = false});
static_assert(Stated::attributes[3] == sk::ParameterAttributes{.frozen = true});

struct PlainBias : sk::Param<"bias", float, 40> {};
struct PlainNorm : sk::Param<"norm", float, 7>, sk::tp::PartialSum {};
struct PlainTable : sk::Param<"table", float, 5> {};
using Plain = sk::Params<Weight, PlainBias, PlainNorm, PlainTable>;

/// Ones, one step of `optimizer_of(model)` with zero gradients; the first element of each parameter. Decay shows
/// alone.
template <class Group, class OptimizerOf>
std::vector<float> decayed(const sk::TensorsOf<Group>& tensors,
                           const sk::ShardedOptions<Group, sk::FullShard>& options, OptimizerOf optimizer_of) {
    std::vector<float> first;
    sk::threads::run(sk::DeviceMesh<3>{}, [&](auto& rank) {
        std::vector<sk::Sharded<Group, sk::FullShard>> layers;
        auto& layer = layers.emplace_back(rank, "layer", tensors, options);
        layer.initialize([](auto, auto, auto) { return 1.0; });
        sk::Model model{layers};
        auto optimizer = optimizer_of(model);
        sk::Accumulation accumulation{model};
        accumulation.add_zero(layer);
        optimizer.step(sk::reduce(std::move(accumulation), sk::sum));
        const auto window = layer.unshard();
        for (std::size_t p = 0; p < 4; ++p) {
            for (const float value : window.view(p)) { CHECK(value == window.view(p)[0]); }
            if (rank.rank() == 0) { first.push_back(window.view(p)[0]); }
        }
    });
    return first;
}

template <class OptimizerOf>
void check_all(const std::vector<float>& expected, OptimizerOf optimizer_of) {
    CHECK(decayed<Stated>({}, {}, optimizer_of) == expected);
    CHECK(decayed<Plain>({}, {.frozen = Plain::mask<PlainTable>(), .no_decay = Plain::mask<PlainBias, PlainNorm>()},
                         optimizer_of) == expected);
    const sk::TensorList<float> list{{"weight", {40, 3}},
                                     {"bias", {40}, {.decay = false}},
                                     {"norm", {7}, {.tp = sk::tp::PartialSum::placement, .decay = false}},
                                     {"table", {5}, {.frozen = true}}};
    CHECK(decayed<sk::TensorList<float>>(list, {}, optimizer_of) == expected);
}

}  // namespace

TEST_CASE("weight decay goes by a parameter's attribute, wherever it is stated") {
    check_all({0.5F, 1, 1, 1}, [](auto model) { return sk::SGD{model, {.learning_rate = 1, .weight_decay = 0.5}}; });
    check_all({0.75F, 1, 1, 1}, [](auto model) {
        return sk::AdamW{model, {.learning_rate = 0.5, .weight_decay = 0.5}};
    });
}

TEST_CASE("a ParamGroup with a weight decay of its own overrides the attribute, one without it does not") {
    check_all({0.5F, 0.75F, 1, 1}, [](auto model) {
        return sk::SGD{model,
                       {.learning_rate = 1, .weight_decay = 0.5},
                       {{.matches = [](auto, auto name) { return name == "bias"; }, .weight_decay = 0.25}}};
    });
    check_all({0.75F, 1, 1, 1}, [](auto model) {
        return sk::SGD{model,
                       {.learning_rate = 1, .weight_decay = 0.5},
                       {{.matches = [](auto, auto) { return true; }, .learning_rate_scale = 0.5}}};
    });
}

TEST_CASE("the records of a group say what was stated, on its type and in its options") {
    sk::threads::run(sk::DeviceMesh<2>{}, [](auto& rank) {
        const sk::Sharded<Stated, sk::FullShard> layer(
            rank, "layer", {}, {.frozen = Stated::mask<Weight>(), .no_decay = Stated::mask<Table>()});
        const auto records = layer.parameters();
        REQUIRE(records.size() == 4);
        const std::array frozen{true, false, false, true};
        const std::array decay{true, false, false, false};
        for (std::size_t p = 0; p < 4; ++p) {
            CHECK(records[p].frozen == frozen[p]);
            CHECK(records[p].decay == decay[p]);
        }
        CHECK(records[2].tp == sk::tp::PartialSum::placement);
        CHECK(records[1].name == "bias");
        CHECK(records[1].range == sk::IndexRange{128, 168});
        CHECK(records[1].part.shape() == records[1].shape);
    });
}

}  // namespace attributes_test
