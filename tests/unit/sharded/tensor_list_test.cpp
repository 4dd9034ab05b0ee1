// SPDX-License-Identifier: Apache-2.0
// A group whose tensors are known only at run time does, bit for bit, what the group of types of the same shapes
// does.
#include <shardkit/param/tensor_list.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>

#include "unit/thrown_message.hpp"

namespace sk = shardkit;

namespace tensor_list_test {

namespace {

using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;
using List = sk::TensorList<float>;

constexpr std::size_t hidden = 12;
struct Up : sk::Param<"up", float, sk::dynamic, 6>, sk::tp::Split<0> {};
struct UpBias : sk::Param<"up_bias", float, sk::dynamic>, sk::tp::Split<0>, sk::NoDecay {};
struct Table : sk::Param<"table", float, 9, 7>, sk::Frozen {};
struct Norm : sk::Param<"norm", float, 6>, sk::tp::PartialSum, sk::NoDecay {};
struct Down : sk::Param<"down", float, 6, sk::dynamic>, sk::tp::Split<1> {};
struct Scale : sk::Param<"scale", float> {};
using Block = sk::Params<Up, UpBias, Table, Norm, Down, Scale>;

sk::Shapes<Block> shapes() {
    return {sk::shape<Up>(hidden, 6U), sk::shape<UpBias>(hidden), sk::shape<Down>(6U, hidden)};
}
List list() {
    return {{"up", {hidden, 6}, {.tp = sk::tp::Split<0>::placement}},
            {"up_bias", {hidden}, {.tp = sk::tp::Split<0>::placement, .decay = false}},
            {"table", {9, 7}, {.frozen = true}},
            {"norm", {6}, {.tp = sk::tp::PartialSum::placement, .decay = false}},
            {"down", {6, hidden}, {.tp = sk::tp::Split<1>::placement}},
            {"scale", {}}};
}

/// The five, with replicas of shards where dp allows both.
std::array<sk::DynamicPolicy, 5> policies(std::size_t dp) {
    return {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
            sk::DynamicPolicy(sk::ShardGradOp{}), sk::DynamicPolicy(sk::FullShard{}),
            sk::DynamicPolicy(sk::HybridShard<sk::dynamic>{dp == 4 ? 2U : 1U})};
}

double first_value(std::string_view path, std::string_view name, std::uint64_t i) {
    return std::sin(0.7 * static_cast<double>(i) + static_cast<double>(name.size()) +
                    static_cast<double>(path.back() % 5));
}

enum class Rule : std::uint8_t { sgd, adamw };

using Tensors = std::vector<std::vector<float>>;

/// A run that a rank holds, without its address.
using Held = std::tuple<std::string, std::string, std::string, std::vector<std::size_t>, sk::IndexRange,
                        sk::IndexRange, std::size_t, std::vector<float>>;

struct Outcome {
    std::vector<double> norms;
    Tensors parameters;
    Tensors gradients;
    std::vector<Held> held;
    sk::Plan plan;

    friend bool operator==(const Outcome& a, const Outcome& b) {
        return a.norms == b.norms && a.parameters == b.parameters && a.gradients == b.gradients && a.held == b.held &&
               a.plan.numel == b.plan.numel && a.plan.memory == b.plan.memory && a.plan.traffic == b.plan.traffic;
    }
};

void hold(const std::vector<sk::ShardInfo>& runs, std::vector<Held>& held) {
    for (const sk::ShardInfo& run : runs) {
        const auto* const data = static_cast<const float*>(run.data);
        std::vector<std::size_t> boxes;
        for (const sk::layout::Box& box : run.boxes) {
            boxes.insert(boxes.end(), box.offsets.begin(), box.offsets.end());
            boxes.insert(boxes.end(), box.extents.begin(), box.extents.end());
        }
        held.emplace_back(run.path, run.parameter, std::string(run.kind) + run.shape.describe() + run.part.describe(),
                          boxes, run.range, run.local, run.replica,
                          std::vector<float>(data, data + run.range.size()));
    }
}

/// Three steps of two microbatches over two blocks, on one rank.
template <class Layer, class Rank, class Made>
Outcome train(Rank& rank, const Made& tensors, const sk::DynamicPolicy& policy, Rule rule, double max_norm) {
    Outcome outcome;
    std::vector<Layer> layers;
    for (const char* path : {"blocks.0", "blocks.1"}) {
        layers.emplace_back(rank, path, tensors, typename Layer::Options{.policy = policy});
        layers.back().initialize(first_value);
    }
    sk::Model model{layers};
    sk::SGD sgd{model, {.learning_rate = 0.5, .rule = sk::Momentum::classical, .momentum = 0.9, .weight_decay = 0.1}};
    sk::AdamW adamw{model, {.learning_rate = 0.125, .weight_decay = 0.1}};
    for (std::size_t step = 0; step < 3; ++step) {
        sk::Accumulation accumulation{model, 2};
        for (std::size_t m = 0; m < 2; ++m) {
            for (Layer& layer : layers) {
                auto window = layer.unshard();
                auto handle = accumulation.gradients(layer);
                for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
                    const auto value = window.view(p);
                    const auto gradient = handle.view(layer.parameters()[p].name);
                    for (std::size_t i = 0; i < gradient.size(); ++i) {
                        gradient[i] += std::cos(value[i] + 0.3F * static_cast<float>(i + m + rank.rank() + step));
                    }
                }
                layer.reshard(std::move(window));
                accumulation.add(std::move(handle));
            }
        }
        auto reduced = sk::reduce(std::move(accumulation), sk::mean);
        const auto norm = sk::global_norm(reduced);
        outcome.norms.push_back(norm.value());
        for (Layer& layer : layers) {
            for (const sk::PlacedParameter& p : layer.parameters()) {
                outcome.gradients.emplace_back(p.shape.numel());
                reduced.read_full(layer, p.name, std::span(outcome.gradients.back()));
            }
        }
        const auto clip = sk::clip(norm, max_norm > 0 ? max_norm : sk::unlimited);
        rule == Rule::sgd ? sgd.step(std::move(reduced), clip) : adamw.step(std::move(reduced), clip);
    }
    for (Layer& layer : layers) {
        for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
            outcome.parameters.emplace_back(layer.parameters()[p].shape.numel());
            layer.read_full(p, std::span(outcome.parameters.back()));
        }
        hold(layer.shards(), outcome.held);
    }
    hold(rule == Rule::sgd ? sgd.shards() : adamw.shards(), outcome.held);
    outcome.plan = sk::plan(model, {.microbatches = 2});
    return outcome;
}

void check_same(const Mesh& mesh, Rule rule) {
    CAPTURE(mesh.describe());
    for (const sk::DynamicPolicy& policy : policies(mesh.grid().extent("dp"))) {
        CAPTURE(policy.name());
        for (const double max_norm : {0.0, 0.5}) {
            CAPTURE(max_norm);
            std::vector<Outcome> types(mesh.size());
            std::vector<Outcome> lists(mesh.size());
            sk::threads::run(mesh, [&](auto& rank) {
                types[rank.rank()] =
                    train<sk::Sharded<Block, sk::DynamicPolicy>>(rank, shapes(), policy, rule, max_norm);
                lists[rank.rank()] =
                    train<sk::Sharded<List, sk::DynamicPolicy>>(rank, list(), policy, rule, max_norm);
            });
            for (std::size_t r = 0; r < mesh.size(); ++r) {
                CAPTURE(r);
                REQUIRE(types[r].norms[0] > 1);
                REQUIRE(types[r].held.size() >= 4);
                REQUIRE(types[r].parameters.size() == 12);
                REQUIRE(types[r].gradients.size() == 36);
                CHECK(types[r] == lists[r]);
            }
        }
    }
}

template <class F>
std::string refused(F make) {
    std::string text = thrown_message<std::invalid_argument>(make);
    return text.substr(0, text.find(" ("));  // the file and the line
}

/// What rank r says of `make(rank)` on two ranks: both refuse, with the same words.
template <class F>
std::string refused_on_both(F make) {
    std::array<std::string, 2> said;
    sk::threads::run(Mesh(2, 1, 1), [&](auto& rank) {
        said[rank.rank()] = thrown_message<std::invalid_argument>([&] { make(rank); });
    });
    CHECK(said[0] == said[1]);
    return said[0];
}

}  // namespace

TEST_CASE("TensorList: trains bit for bit as the same group of types, on two to four ranks and with tp") {
    const std::array meshes{Mesh(2, 1, 1), Mesh(3, 1, 1), Mesh(4, 1, 1), Mesh(2, 2, 1)};
    SUBCASE("SGD") {
        for (const Mesh& mesh : meshes) { check_same(mesh, Rule::sgd); }
    }
    SUBCASE("AdamW") {
        for (const Mesh& mesh : meshes) { check_same(mesh, Rule::adamw); }
    }
}

TEST_CASE("TensorList: views by name and by number are the views by type, on windows and gradient handles") {
    sk::threads::run(Mesh(2, 1, 1), [](auto& rank) {
        sk::Sharded<Block, sk::FullShard> types(rank, "types", shapes());
        sk::Sharded<List, sk::FullShard> lists(rank, "lists", list());
        sk::Model model{types, lists};
        const auto by_type = types.unshard();
        const auto by_name = lists.unshard();
        CHECK(by_type[Down{}].data() == by_type.view("down").data());
        CHECK(by_type[Down{}].data() == by_type.view(4).data());
        CHECK(by_type.view(std::string("down")).size() == 72);
        CHECK(by_name.view("down").data() == by_name.view(4U).data());
        CHECK(by_name.view("down").data() - by_name.view(0).data() == by_type[Down{}].data() - by_type[Up{}].data());
        CHECK(by_name.view("down").shape() == sk::TensorShape{2, {6, hidden}});
        sk::Accumulation accumulation{model};
        const auto typed = accumulation.gradients(types);
        const auto named = accumulation.gradients(lists);
        CHECK(typed[Norm{}].data() == typed.view("norm").data());
        CHECK(typed[Norm{}].data() == typed.view(3).data());
        CHECK(named.view("norm").data() == named.view(3).data());
        CHECK(named.view("norm").size() == 6);
    });
}

namespace {

struct Tied : sk::Alias<"tied", Norm> {};

}  // namespace

TEST_CASE("an alias has its own name among views, loads and reads") {
    sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        sk::Sharded<sk::Params<Scale, Tied, Norm>, sk::NoShard> layer(rank, "layer");
        const std::vector<float> values{1, 2, 3, 4, 5, 6};
        layer.load("tied", std::span<const float>(values));
        std::vector<float> read(6);
        layer.read_full("norm", std::span(read));
        CHECK(read == values);
        const auto window = layer.unshard();
        CHECK(window.view("tied").data() == window[Norm{}].data());
        CHECK(layer.number_of("tied") == 1);
        CHECK(layer.number_of(Tied{}) == 1);
    });
}

TEST_CASE("TensorList: values by name and number, full values, adopted memory; a list may end before its group") {
    const std::vector<float> weight{1, 2, 3, 4, 5, 6};
    const std::vector<float> bias{7, 8, 9};
    sk::threads::run(Mesh(2, 1, 1), [&](auto& rank) {
        using Layer = sk::Sharded<List, sk::FullShard>;
        const auto read = [](auto& layer) {
            std::vector<float> both(9);
            layer.read_full("a weight with a long name", std::span(both).first(6));
            layer.read_full(1, std::span(both).subspan(6));
            return both;
        };
        const std::vector<float> expected{1, 2, 3, 4, 5, 6, 7, 8, 9};
        std::vector<sk::NamedTensor> tensors;  // from a file, say
        tensors.emplace_back("a weight with a long name", std::vector<std::size_t>{3, 2});
        tensors.emplace_back("bias", std::vector<std::size_t>{3});
        Layer loaded(rank, "loaded", List(tensors));
        loaded.load(0, std::span<const float>(weight));
        loaded.load("bias", std::span<const float>(bias));
        CHECK(read(loaded) == expected);
        Layer moved = std::move(loaded);
        CHECK(moved.parameters()[1].name == "bias");
        CHECK(read(moved) == expected);

        const std::array<std::span<const float>, 2> all{std::span<const float>(weight), std::span<const float>(bias)};
        auto wrapped = Layer::from_full(rank, "wrapped", List(tensors), {}, all);
        CHECK(read(wrapped) == expected);
        std::vector<float> on_one(rank.rank() == 1 ? 3 : 0);
        wrapped.read_full_on(1, "bias", std::span(on_one));
        if (rank.rank() == 1) { CHECK(on_one == bias); }

        std::vector<float> memory = expected;
        using Adopted = sk::Sharded<List, sk::NoShard>;
        auto adopted = Adopted::adopt(rank, "adopted", List(tensors), {std::span(memory), {}});
        CHECK(adopted.layout().buffer_numel() == 9);
        {
            const auto window = adopted.unshard();
            CHECK(window.view("bias").data() == memory.data() + 6);
        }
        CHECK(read(adopted) == expected);

        std::vector<sk::ShardInfo> held;
        {
            Layer ends(rank, "ends", List(tensors));
            held = ends.shards();
        }
        REQUIRE(held.size() == 1);  // 32 elements of the alignment on each rank
        CHECK(held[0].parameter == (rank.rank() == 0 ? "a weight with a long name" : "bias"));
    });
}

TEST_CASE("TensorList: from arrays of names and sizes") {
    const char* const names[] = {"wte", "wpe"};
    const std::size_t sizes[] = {21, 5};
    const List packed(names, sizes, {.decay = false});
    REQUIRE(packed.size() == 2);
    CHECK(packed[1].name() == "wpe");
    CHECK(packed[1].shape() == sk::TensorShape{1, {5}});
    CHECK_FALSE(packed[0].attributes().decay);
    const std::vector<std::string> three{"a", "b", "c"};
    CHECK(refused([&] { const List wrong(three, sizes); }) ==
          "TensorList: 3 names and 2 sizes, expected one size for each name");
}

TEST_CASE("TensorList: extents from arrays and vectors") {
    const int dims[] = {3, 4};
    const sk::TensorList<float> list{{"w", dims}, {"b", std::vector<std::size_t>{5}}, {"c", {2, 2}}};
    CHECK(list[0].shape() == sk::TensorShape{2, {3, 4}});
    CHECK(list[1].shape() == sk::TensorShape{1, {5}});
    CHECK(list[2].shape() == sk::TensorShape{2, {2, 2}});
}

TEST_CASE("TensorList: refused, with what was given and what was expected") {
    CHECK(refused([] {
              const sk::NamedTensor nine("nine", {1, 1, 1, 1, 1, 1, 1, 1, 1});
          }) == "tensor 'nine': 9 extents, expected at most 8");
    sk::self::run(sk::DeviceMesh<1>{}, [](auto& rank) {
        using Layer = sk::Sharded<List, sk::FullShard>;
        const auto message = [&](const List& given) { return refused([&] { const Layer layer(rank, "b", given); }); };
        CHECK(message({}) == "'b': the list has no tensor, expected at least one");
        CHECK(message({{"w", {3}}, {"", {3}}}) == "'b': tensor 1 has an empty name, expected one as 'weight'");
        CHECK(message({{"w", {3}}, {"v", {3}}, {"w", {4}}}) ==
              "'b': tensors 0 and 2 have the name 'w', expected distinct names");
        CHECK(message({{"w", {3, 0}}}) == "'b' parameter 'w': extent 1 is 0, expected at least 1");
        CHECK(message({{"w", {std::size_t{1} << 40U, std::size_t{1} << 40U}}}) ==
              "'b' parameter 'w': the element count of shape [1099511627776, 1099511627776] overflows 64 bits");
        CHECK(message({{"w", {3}, {.tp = sk::tp::Split<1>::placement}}}) ==
              "'b' parameter 'w' of shape [3]: tp splits dimension 1, expected one that it has");
        constexpr auto partial = sk::tp::PartialSum::placement;
        CHECK(message({{"w", {3}, {.tp = partial}}, {"v", {3}}, {"u", {3}, {.tp = partial}}}) ==
              "'b': tensors that are tp::PartialSum stand apart, expected one after the other: one call sums them");

        Layer layer(rank, "b", {{"w", {2, 2}}, {"v", {3}}});
        const std::vector<float> three(3);
        const std::span<const float> values(three);
        std::vector<float> out(3);
        CHECK(refused([&] { layer.load("x", values); }) ==
              "'b': no parameter is named 'x', expected one of 'w', 'v'");
        CHECK(refused([&] { layer.load(2, values); }) ==
              "'b': no parameter has the number 2, expected one from 0 to 1");
        CHECK(refused([&] { layer.load(-1, values); }) ==
              "'b': no parameter has the number -1, expected one from 0 to 1");
        CHECK(refused([&] { layer.load("w", values); }) == "'b' parameter 'w': load with 3 elements, expected 4");
        CHECK(refused([&] { layer.read_full("y", std::span(out)); }) ==
              "'b': no parameter is named 'y', expected one of 'w', 'v'");
        CHECK(refused([&] { layer.read_full(0, std::span(out)); }) ==
              "'b' parameter 'w': read_full with 3 elements, expected 4");
        CHECK(refused([&] { layer.read_full_on(0, 5, std::span(out)); }) ==
              "'b': no parameter has the number 5, expected one from 0 to 1");
        const auto window = layer.unshard();
        CHECK(refused([&] { window.view("z"); }) == "'b': no parameter is named 'z', expected one of 'w', 'v'");
        CHECK(refused([&] { window.view(9); }) == "'b': no parameter has the number 9, expected one from 0 to 1");
        sk::Model model{layer};
        sk::Accumulation accumulation{model};
        auto handle = accumulation.gradients(layer);
        CHECK(refused([&] { handle.view("z"); }) == "'b': no parameter is named 'z', expected one of 'w', 'v'");
        accumulation.add(std::move(handle));
        CHECK_USAGE_ERROR(handle.view("w"), "gradient handle used after it was added");
        const auto reduced = sk::reduce(std::move(accumulation), sk::sum);
        CHECK(refused([&] { reduced.read_full(layer, "z", std::span(out)); }) ==
              "'b': no parameter is named 'z', expected one of 'w', 'v'");
        const std::array<std::span<const float>, 1> one{values};
        CHECK(refused([&] {
                  Layer::from_full(rank, "c", {{"w", {3}}, {"v", {3}}}, {}, one);
              }) == "'c': from_full with values of 1 parameters, expected 2");
        const List exact{{"w", {3}}};
        using Whole = sk::Sharded<List, sk::NoShard>;
        CHECK(refused([&] {
                  Whole::adopt(rank, "d", {{"w", {4}}}, {std::span(out), {}});
              }) == "'d': adopted parameters hold 3 elements, expected 4");
        CHECK(refused([&] { const Layer sharded(rank, "e", exact, {.packing = sk::Packing::exact}); }) ==
              "'e': Packing::exact given, but full_shard shards; expected aligned or packed");
    });
    sk::threads::run(Mesh(1, 2, 1), [](auto& rank) {
        using Layer = sk::Sharded<List, sk::FullShard>;
        CHECK(refused([&] {
                  const Layer layer(rank, "b", {{"w", {3}, {.tp = sk::tp::Split<0>::placement}}});
              }) ==
              "'b' parameter 'w' of shape [3] is split along dimension 0 over tp = 2, expected an extent that 2 "
              "divides; rows of padding need not be in files: checkpoint::StoredAs::padding_rows");
    });
}

TEST_CASE("a group that is not the same on every rank is refused on every rank, whether list or types") {
    const auto lists = [](const List& zero, const List& one) {
        return refused_on_both([&](auto& rank) {
            const sk::Sharded<List, sk::FullShard> layer(rank, "b", rank.rank() == 0 ? zero : one);
        });
    };
    // 99 and 100 elements are padded to the same buffer.
    const std::string sizes = lists({{"w", {99}}}, {{"w", {100}}});
    CHECK(sizes.find(
              "'b': rank 0 makes it with parameter 0 of shape [99], called 'w', rank 1 with parameter 0 of shape "
              "[100], called 'w', expected the same path, names, shapes, attributes, policy, masters and seed on "
              "every rank (") == 0);
    const std::string differs = "'b': rank 0 makes it with parameter";
    CHECK(lists({{"w", {6}}}, {{"v", {6}}}).find(differs) == 0);
    CHECK(lists({{"w", {2, 3}}}, {{"w", {3, 2}}}).find(differs) == 0);
    CHECK(lists({{"w", {6}}}, {{"w", {6}, {.frozen = true}}}).find(differs) == 0);
    CHECK(lists({{"w", {6}}}, {{"w", {6}, {.decay = false}}}).find(differs) == 0);
    CHECK(lists({{"w", {6}}}, {{"w", {6}, {.tp = sk::tp::PartialSum::placement}}}).find(differs) == 0);
    CHECK(lists({{"w", {3}}, {"v", {3}}}, {{"w", {6}}}).find(differs) == 0);
    CHECK(refused_on_both([](auto& rank) {
              const sk::Sharded<UpBias, sk::NoShard> layer(rank, "b", sk::shape<UpBias>(99 + rank.rank()));
          }).find("'b': rank 0 makes it with parameter 0 of shape [99]") == 0);
    CHECK(
        refused_on_both([](auto& rank) {
            using Layer = sk::Sharded<Norm, sk::NoShard>;
            typename Layer::Options options;
            if (rank.rank() == 0) { options.frozen = sk::Params<Norm>::all(); }
            const Layer layer(rank, "b", {}, options);
        })
            .find("'b': rank 0 makes it with parameter 0 of shape [6], frozen, without decay, a partial sum over tp, "
                  "called 'norm', rank 1 with parameter 0 of shape [6], without decay, a partial") == 0);
    // Its path names the rank's own, so the words differ.
    sk::threads::run(Mesh(2, 1, 1), [&](auto& rank) {
        using Layer = sk::Sharded<Norm, sk::NoShard>;
        CHECK_THROWS_AS(Layer(rank, rank.rank() == 0 ? "a" : "b"), std::invalid_argument);
    });
}

TEST_CASE("TensorList: a description without a rank is that of the group that exists, and of the types") {
    for (const sk::DynamicPolicy& policy : policies(2)) {
        CAPTURE(policy.name());
        const Mesh mesh(2, 2, 1);
        const sk::planner::GroupDescription types =
            sk::describe_group<Block, sk::DynamicPolicy>("b", shapes(), mesh.grid(), policy);
        const sk::planner::GroupDescription lists =
            sk::describe_group<List, sk::DynamicPolicy>("b", list(), mesh.grid(), policy);
        CHECK(types == lists);
        CHECK(lists.numel == 12 * 6 + 12 + 63 + 6 + 72 + 1);
        sk::threads::run(mesh, [&](auto& rank) {
            const sk::Sharded<List, sk::DynamicPolicy> layer(rank, "b", list(), {.policy = policy});
            CHECK(lists == sk::describe_group(layer));
        });
    }
    const List frozen{{"a", {5}, {.frozen = true}}, {"b", {6}, {.frozen = true}}};
    CHECK_FALSE(sk::describe_group<List, sk::NoShard>("b", frozen, Mesh(1, 1, 1).grid()).trainable);
}

}  // namespace tensor_list_test
