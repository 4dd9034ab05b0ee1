// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/core/bf16.hpp>
#include <shardkit/param/initial_values.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/named_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/local_shards.hpp>
#include <shardkit/step/model.hpp>

#include "unit/sharded/custom_policies.hpp"
#include "unit/sharded/linear_layer.hpp"
#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace values_test {

using toy::Bias;
using toy::Flat;
using toy::Weight;

namespace {

std::vector<double> counting(std::size_t n, double first) {
    std::vector<double> values;
    for (std::size_t i = 0; i < n; ++i) { values.push_back(first + static_cast<double>(i)); }
    return values;
}

template <class T, class Layer, class P>
std::vector<T> read(Layer& layer, P parameter, std::size_t numel) {
    std::vector<T> values(numel);
    layer.read_full(parameter, std::span(values));
    return values;
}

// Runs of tp's parts that are longer than what is staged at once, shorter, and a tensor of one run.
struct Wide : sk::Param<"wide", double, 3, sk::dynamic> {
    using TensorParallel = sk::tp::Split<1>;
};
struct Narrow : sk::Param<"narrow", double, sk::dynamic, 6> {
    using TensorParallel = sk::tp::Split<1>;
};
struct Tall : sk::Param<"tall", double, sk::dynamic> {};
using Long = sk::Params<Wide, Narrow, Tall>;

/// Loads values of type T into `parameter` and reads them as T and as double: value i is expected(i).
template <class T, class Layer, class P>
void check_round_trip(Layer& layer, P parameter, std::size_t numel, double (*expected)(double)) {
    std::vector<T> given;
    std::vector<double> rounded;
    for (std::size_t i = 0; i < numel; ++i) {
        const auto value = static_cast<T>(static_cast<sk::Arithmetic<T>>(static_cast<double>(i) / 8));
        given.push_back(value);
        rounded.push_back(expected(static_cast<double>(static_cast<sk::Arithmetic<T>>(value))));
    }
    layer.load(parameter, given);
    CHECK(read<double>(layer, parameter, numel) == rounded);
    std::vector<double> again;
    for (const T value : read<T>(layer, parameter, numel)) {
        again.push_back(static_cast<double>(static_cast<sk::Arithmetic<T>>(value)));
    }
    CHECK(again == rounded);
}

/// body(rank, policy) on worlds 1 to 8 with each policy.
template <class Body>
void everywhere(Body body) {
    for (const std::size_t world : {1U, 2U, 3U, 5U, 8U}) {
        CAPTURE(world);
        sk::threads::run(Flat{world}, [&](auto& rank) {
            body(rank, sk::DynamicPolicy(sk::NoShard{}));
            body(rank, sk::DynamicPolicy(sk::ShardOptimizer{}));
            body(rank, sk::DynamicPolicy(sk::FullShard{}));
            body(rank, sk::DynamicPolicy(toy::KeepUntilUpdate{}));
            body(rank, sk::DynamicPolicy(sk::HybridShard<1>{}));
            body(rank, sk::DynamicPolicy(sk::HybridOptimizer<1>{}));
            body(rank, sk::DynamicPolicy(sk::SecondaryShard<1>{}));
        });
    }
}

}  // namespace

TEST_CASE("initialize gives the same values for every world size and policy") {
    everywhere([](auto& rank, const sk::DynamicPolicy& policy) {
        auto layer = toy::linear_layer(rank, "layer", policy);
        CHECK(read<double>(layer, Weight{}, 35) == counting(35, 0));
        CHECK(read<double>(layer, Bias{}, 7) == counting(7, 100));
    });
}

TEST_CASE("initialize by the engine's kernels: the bits that the host gives, under every policy, tp and precision") {
    const auto values_of = [](std::string_view /*path*/, std::string_view name) {
        return name == "narrow" ? sk::InitialValues::constant(0.1) : sk::InitialValues::normal(0.25, 0.5, 42);
    };
    const auto check = [&]<class Precision>(auto& rank, const sk::DynamicPolicy& policy, Precision /*precision*/) {
        using Gather = typename Precision::Gather;
        using Layer = sk::Sharded<sk::TensorList<Gather>, sk::DynamicPolicy, Precision>;
        const sk::ParameterAttributes split{.tp = {sk::TpPlacement::Kind::split, 1}};
        const sk::TensorList<Gather> tensors{
            {"wide", {3, 2008}, split}, {"narrow", {41, 6}, split}, {"tall", {1031}}};
        Layer by_kernel(rank, "layer", tensors, {policy});
        Layer by_host(rank, "layer", tensors, {policy});
        sk::Model{by_kernel}.initialize(values_of);
        by_host.initialize([&](std::string_view path, std::string_view name, std::uint64_t i) {
            return values_of(path, name)(path, name)(i);
        });
        for (std::size_t p = 0; p < 3; ++p) {
            const std::size_t numel = by_host.parameters()[p].shape.numel();
            CHECK(read<double>(by_kernel, p, numel) == read<double>(by_host, p, numel));
        }
        // And what an update would begin from: the masters.
        const auto updated = [](Layer& layer) {
            std::vector<double> all;
            sk::read_shards(layer, [&](const auto& run) {
                for (const auto value : run.values) {
                    all.push_back(static_cast<double>(
                        static_cast<sk::Arithmetic<std::remove_const_t<decltype(value)>>>(value)));
                }
            });
            return all;
        };
        CHECK(updated(by_kernel) == updated(by_host));
        const auto wide = read<double>(by_kernel, 0U, 6024);
        CHECK(wide[6023] != wide[6022]);
        CHECK(wide[0] != 0);
    };
    using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic>;
    for (const auto& extents : {std::pair(1U, 1U), std::pair(3U, 1U), std::pair(2U, 2U)}) {
        const std::size_t dp = extents.first;
        const std::size_t tp = extents.second;
        CAPTURE(dp);
        CAPTURE(tp);
        sk::threads::run(Mesh(dp, tp), [&](auto& rank) {
            for (const char* policy : {"no_shard", "shard_optimizer", "full_shard", "hybrid_shard:1",
                                       "hybrid_optimizer:1", "secondary_shard:1"}) {
                CAPTURE(policy);
                check(rank, sk::named_policy(policy), sk::DefaultPrecision<double>{});
                check(rank, sk::named_policy(policy), sk::Precision<sk::bf16, sk::bf16, float, float>{});
            }
        });
    }
}

TEST_CASE("parameters start at zero, also a group whose shards are mostly empty") {
    everywhere([](auto& rank, const sk::DynamicPolicy& policy) {
        sk::Sharded<toy::Tail, sk::DynamicPolicy> layer(rank, "tail", {}, {policy});
        CHECK(read<float>(layer, toy::Shift{}, 2) == std::vector<float>{0, 0});
        layer.initialize([](std::string_view path, std::string_view name, std::uint64_t i) {
            CHECK(path == "tail");
            return static_cast<double>(name.size()) + static_cast<double>(i) / 2;
        });
        CHECK(read<float>(layer, toy::Gain{}, 1) == std::vector<float>{4});
        CHECK(read<float>(layer, toy::Shift{}, 2) == std::vector<float>{5, 5.5F});
        CHECK(read<float>(layer, toy::Temperature{}, 1) == std::vector<float>{11});
    });
}

TEST_CASE("initialize asks for each element that this rank holds and for no other") {
    sk::threads::run(Flat{4}, [](auto& rank) {
        // fp64 in shards of 16: weight 0..34 lies at 0..34, bias at 48..54.
        auto layer = toy::linear_layer<sk::FullShard>(rank);
        std::vector<std::uint64_t> weights;
        std::vector<std::uint64_t> biases;
        layer.initialize([&](std::string_view, std::string_view name, std::uint64_t i) {
            (name == "weight" ? weights : biases).push_back(i);
            return 0.0;
        });
        const std::vector<std::vector<std::uint64_t>> expected_weights{
            {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
            {16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31},
            {32, 33, 34},
            {}};
        CHECK(weights == expected_weights[rank.rank()]);
        CHECK(biases ==
              (rank.rank() == 3 ? std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6} : std::vector<std::uint64_t>{}));
    });
}

TEST_CASE("wrapping full values: each rank keeps its shard") {
    everywhere([](auto& rank, const sk::DynamicPolicy& policy) {
        using Layer = toy::LinearLayer<sk::DynamicPolicy>;
        const auto weight = counting(35, 7);
        const std::vector<float> bias{1, 2, 3, 4, 5, 6, 7.5F};  // another element type
        auto layer = Layer::from_full(rank, "wrapped", toy::linear_shapes(), {policy, {}, {}},
                                      sk::full_values<Bias>(std::span<const float>(bias)),
                                      sk::full_values<Weight>(std::span<const double>(weight)));
        CHECK(read<double>(layer, Weight{}, 35) == weight);
        CHECK(read<float>(layer, Bias{}, 7) == bias);
        const auto other = counting(7, -3);
        layer.load(Bias{}, std::span<const double>(other));
        CHECK(read<double>(layer, Weight{}, 35) == weight);
        CHECK(read<double>(layer, Bias{}, 7) == other);
    });
}

TEST_CASE("wrapping values of another size names the parameter and both sizes") {
    sk::self::run(Flat{1}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard>(rank, "blocks.3");
        std::vector<double> values(8);
        CHECK_THROWS_WITH_AS(layer.load(Bias{}, std::span<const double>(values)),
                             doctest::Contains("'blocks.3' parameter 'bias': load with 8 elements, expected 7"),
                             std::invalid_argument);
        CHECK_THROWS_WITH_AS(
            layer.read_full(Weight{}, std::span(values)),
            doctest::Contains("'blocks.3' parameter 'weight': read_full with 8 elements, expected 35"),
            std::invalid_argument);
        CHECK(read<double>(layer, Bias{}, 7) == counting(7, 100));
    });
}

TEST_CASE("values are rounded once to a 16-bit gathered type, by way of the master") {
    everywhere([](auto& rank, const sk::DynamicPolicy& policy) {
        auto layer = toy::linear_layer<sk::DynamicPolicy, sk::Precision<sk::bf16>>(rank, "layer", policy);
        // bf16 has 8 significant bits: 257 is halfway to 258 and goes to the even 256; 259 goes to 260.
        const std::vector<double> values{256, 257, 258, 259, -257, 0.1, 1e-3};
        layer.load(Bias{}, std::span<const double>(values));
        CHECK(read<float>(layer, Bias{}, 7) ==
              std::vector<float>{256, 256, 258, 260, -256, 0.10009765625F, 0.00099945068359375F});
        for (const auto& shard : layer.shards()) {
            if (shard.parameter != "bias" || shard.kind != "master") { continue; }
            for (std::size_t i = 0; i < shard.range.size(); ++i) {
                CHECK(static_cast<const float*>(shard.data)[i] == static_cast<float>(values[shard.range.begin + i]));
            }
        }
    });
}

TEST_CASE("tensors longer than what is staged are loaded and read as they were given, also where tp splits them") {
    using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic>;
    for (const Mesh mesh : {Mesh{1, 1}, Mesh{2, 2}, Mesh{1, 3}}) {
        CAPTURE(mesh.size());
        sk::threads::run(mesh, [](auto& rank) {
            const auto check = [&](auto precision, auto given, double (*expected)(double)) {
                using T = decltype(given);
                sk::Sharded<Long, sk::DynamicPolicy, decltype(precision)> layer(
                    rank, "long", {sk::shape<Wide>(3U, 7506U), sk::shape<Narrow>(1701U, 6U), sk::shape<Tall>(5003U)},
                    {sk::DynamicPolicy(sk::FullShard{})});
                check_round_trip<T>(layer, Wide{}, 3 * 7506, expected);
                check_round_trip<T>(layer, Narrow{}, 1701 * 6, expected);
                check_round_trip<T>(layer, Tall{}, 5003, expected);
            };
            const auto as_given = [](double value) { return value; };
            const auto in_bf16 = [](double value) {
                return static_cast<double>(static_cast<float>(sk::bf16(static_cast<float>(value))));
            };
            check(sk::Precision<double>{}, double{}, as_given);
            check(sk::Precision<double>{}, float{}, as_given);
            check(sk::Precision<sk::bf16>{}, sk::bf16{}, as_given);
            check(sk::Precision<sk::bf16>{}, float{}, in_bf16);
        });
    }
}

TEST_CASE("read_full_on fills the root's memory alone") {
    sk::threads::run(Flat{3}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard>(rank);
        std::vector<float> values(rank.rank() == 1 ? 35 : 0);
        layer.read_full_on(1, Weight{}, std::span(values));
        if (rank.rank() == 1) {
            for (std::size_t i = 0; i < 35; ++i) { CHECK(values[i] == static_cast<float>(i)); }
        }
        CHECK_THROWS_WITH_AS(layer.read_full_on(3, Weight{}, std::span(values)),
                             doctest::Contains("'layer': read_full_on root 3, expected a rank below 3"),
                             std::invalid_argument);
    });
}

TEST_CASE("a container needs a path") {
    sk::self::run(Flat{1}, [](auto& rank) {
        CHECK_THROWS_WITH_AS(toy::linear_layer<sk::FullShard>(rank, ""),
                             doctest::Contains("Sharded: the path is empty, expected a name as 'blocks.3'"),
                             std::invalid_argument);
    });
}

TEST_CASE("a parameter alone is a group of one, and an alias is another name of the same memory") {
    struct Tied : sk::Alias<"tied", Weight> {};
    sk::threads::run(Flat{3}, [](auto& rank) {
        sk::Sharded<Bias, sk::FullShard> alone(rank, "alone", {sk::shape<Bias>(70U)});
        alone.initialize([](auto, auto, std::uint64_t i) { return static_cast<double>(i); });
        CHECK(read<double>(alone, Bias{}, 70) == counting(70, 0));

        using Pair = sk::Params<Weight, Tied, Bias>;
        static_assert(Pair::count == 2);
        sk::Sharded<Pair, sk::FullShard> pair(rank, "pair", {sk::shape<Weight>(4U, 9U), sk::shape<Bias>(9U)});
        pair.initialize([](auto, std::string_view name, std::uint64_t i) {
            CHECK(name != "tied");
            return static_cast<double>(i);
        });
        const auto window = pair.unshard();
        CHECK(window[Tied{}].data() == window[Weight{}].data());
        CHECK(window[Tied{}].size() == 36);
        CHECK(read<double>(pair, Tied{}, 36) == counting(36, 0));
        for (const auto& shard : pair.shards()) { CHECK(shard.parameter != "tied"); }
    });
}

TEST_CASE("values are arrays, vectors and spans, and every parameter can be walked over") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        auto layer = toy::linear_layer(rank, "layer", sk::DynamicPolicy(sk::FullShard{}));
        const float array[7] = {7, 6, 5, 4, 3, 2, 1};
        layer.load(Bias{}, array);
        double read_back[7] = {};
        layer.read_full(Bias{}, read_back);
        CHECK(read_back[1] == 6);
        layer.load("weight", counting(35, 1000));
        std::vector<double> weight(35);
        layer.read_full("weight", weight);
        CHECK(weight == counting(35, 1000));
        layer.read_full(0, std::span(weight));
        std::vector<double> root(rank.rank() == 1 ? 7 : 0);
        layer.read_full_on(1, Bias{}, root);
        if (rank.rank() == 1) { CHECK(root[6] == 1); }
        CHECK_INVALID_ARGUMENT(layer.load(Bias{}, counting(6, 0)),
                               "'layer' parameter 'bias': load with 6 elements, expected 7");

        const auto window = layer.unshard();
        std::vector<std::string> seen;
        layer.for_each_parameter([&](const sk::PlacedParameter& parameter, std::size_t number) {
            const auto view = window.view(number);
            seen.push_back(std::string(parameter.name) + " " + parameter.shape.describe());
            CHECK(view.size() == parameter.shape.numel());
        });
        CHECK(seen == std::vector<std::string>{"weight [7, 5]", "bias [7]"});
        CHECK(window[Weight{}](6, 4) == 1034);
        static_assert(std::is_same_v<decltype(window[Weight{}].const_cast_data()), double*>);
    });
}

TEST_CASE("a reduced gradient is read into a vector") {
    sk::threads::run(Flat{2}, [](auto& rank) {
        auto layer = toy::linear_layer<sk::FullShard>(rank);
        sk::Model model{layer};
        sk::Accumulation accumulation{model};
        toy::add(accumulation, layer, 1);
        std::vector<float> bias(7);
        sk::reduce(std::move(accumulation), sk::mean).read_full(layer, Bias{}, bias);
        CHECK(bias[6] == 7);
    });
}

}  // namespace values_test
