// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/checkpoint.hpp>
#include <shardkit/core/bf16.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/reshard.hpp>
#include <shardkit/verbs/split.hpp>

#include "../thrown_message.hpp"
#include "experts_training.hpp"
#include "temporary_folder.hpp"
#include "test_size.hpp"

namespace sk = shardkit;

namespace experts_state_test {

namespace {

using experts_training::Training;
using temporary_folder::contents;
using temporary_folder::Folder;
using Mesh = sk::ExpertMesh<sk::DeviceMesh<sk::dynamic, sk::dynamic, 1>>;

struct On {
    std::size_t dp, tp, ep;
    sk::DynamicPolicy policy;

    Mesh mesh() const { return Mesh{sk::DeviceMesh{dp, tp}, ep}; }
};
/// Meshes and policies of all kinds, which have the same bits.
std::vector<On> all_kinds() {
    const sk::Slices cut{4};
    return {{1, 1, 1, sk::DynamicPolicy(sk::TreeSums<sk::NoShard>{cut})},
            {4, 1, 4, sk::DynamicPolicy(sk::TreeSums<sk::FullShard>{cut})},
            {4, 1, 2, sk::DynamicPolicy(sk::TreeSums<sk::NoShard>{cut})},
            {2, 1, 2, sk::DynamicPolicy(sk::TreeSums<sk::ShardGradOp>{cut})},
            {2, 1, 2, sk::DynamicPolicy(sk::TreeSums<sk::NoShard>{cut})},
            {4, 1, 1, sk::DynamicPolicy(sk::TreeSums<sk::HybridShard<2>>{cut})},
            {4, 1, 2, sk::DynamicPolicy(sk::TreeSums<sk::HybridShard<2>>{cut})},
            {4, 1, 2, sk::DynamicPolicy(sk::TreeSums<sk::ShardOptimizer>{cut})}};
}

}  // namespace

TEST_CASE("experts: a checkpoint has the same bytes for every ep, and a run goes on from it on any other") {
    const Folder folder;
    std::map<std::string, std::string> first, second;
    const auto kinds = all_kinds();
    for (std::size_t k = 0; k < kinds.size(); ++k) {
        const On& on = kinds[k];
        CAPTURE(on.mesh().describe());
        CAPTURE(on.policy.name());
        const std::string own = folder.file(std::to_string(k));
        const std::string before = folder.file(std::to_string(k == 0 ? 0 : k - 1));
        sk::threads::run(on.mesh(), [&](auto& rank) {
            Training training(rank, on.policy, on.policy);
            const sk::checkpoint::State state{training.model, training.optimizer};
            if (k == 0) {
                training.step(0);
                sk::checkpoint::save(rank, own, 1, state);
            } else {  // what another mesh has saved
                sk::checkpoint::load(rank, before + "/step-00000001", state);
                sk::checkpoint::save(rank, own, 1, state);
            }
            training.step(1);
            sk::checkpoint::save(rank, own, 2, state);
        });
        const auto saved = contents(own + "/step-00000001");
        const auto trained = contents(own + "/step-00000002");
        if (k == 0) {
            first = saved;
            second = trained;
            CHECK(saved.size() > 2);
        }
        CHECK(saved == first);
        CHECK(trained == second);
    }
    const sk::safetensors::File file(folder.file("0") + "/step-00000001/model.safetensors");
    std::string names;
    for (const auto& tensor : file.tensors()) { names += tensor.name + tensor.shape.describe() + ' '; }
    CHECK(names.find("experts.up[4, 6, 5]") != std::string::npos);
    CHECK(names.find("experts.fixed[4, 2]") != std::string::npos);
}

TEST_CASE("experts: tp cuts each expert, and the bytes of a checkpoint are the same") {
    const Folder folder;
    const sk::DynamicPolicy policy(sk::FullShard{});
    std::map<std::string, std::string> first;
    std::size_t number = 0;
    for (const auto& on :
         {std::array<std::size_t, 3>{1, 1, 1}, {2, 2, 2}, {4, 2, 2}, {3, 1, 1}, {2, 2, 1}, {4, 1, 4}}) {
        const std::size_t dp = on[0], tp = on[1], ep = on[2];
        const std::string own = folder.file(std::to_string(number));
        sk::threads::run(Mesh{sk::DeviceMesh{dp, tp}, ep}, [&, number = number](auto& rank) {
            Training training(rank, policy, policy);
            const sk::checkpoint::State state{training.model, training.optimizer};
            if (number > 0) {
                sk::checkpoint::load(rank, folder.file(std::to_string(number - 1)) + "/step-00000001", state);
            }
            sk::checkpoint::save(rank, own, 1, state);
        });
        if (number++ == 0) { first = contents(own); }
        CHECK(contents(own) == first);
    }
}

namespace {

struct Stack : sk::Param<"stack", sk::bf16, 4, 8, 3>, sk::ep::Split {};
struct Cut : sk::Param<"cut", sk::bf16, 4, 3, 8>, sk::ep::Split, sk::tp::Split<1> {};
struct Kept : sk::Param<"kept", sk::bf16, 4, 5>, sk::ep::Split, sk::Frozen {};
using Half = sk::Params<Stack, Cut, Kept>;

double noise(std::size_t i) { return static_cast<double>((i * i * 7 + i) % 31) / 16 - 1; }

/// Two steps of Muon over a group of experts alone, with masters and gradients that do not depend on the mesh.
std::map<std::string, std::vector<float>> muon(const Mesh& mesh, const sk::DynamicPolicy& policy,
                                               const std::string& from, const std::string& to) {
    std::map<std::string, std::vector<float>> values;
    sk::threads::run(mesh, [&](auto& rank) {
        sk::Sharded<Half, sk::DynamicPolicy> layer(rank, "moe", {}, {policy});
        layer.initialize([](auto, auto, std::uint64_t i) { return noise(i + 3); });
        sk::Model model{layer};
        sk::Muon optimizer{model, {.learning_rate = 0.125}};
        const sk::checkpoint::State state{model, optimizer};
        if (!from.empty()) { sk::checkpoint::load(rank, from + "/step-00000001", state); }
        const auto& geometry = sk::spi::group(layer).geometry();
        for (const std::size_t step : {0U, 1U}) {
            if (!from.empty() && step == 0) { continue; }
            sk::Accumulation accumulation{model};
            auto gradients = accumulation.gradients(layer);
            for (std::size_t p = 0; p < 2; ++p) {
                const auto view = gradients.view(p);
                for (std::size_t i = 0; i < view.size(); ++i) {
                    // Sums of small numbers of sixteenths are exact.
                    view.data()[i] =
                        sk::bf16(static_cast<float>(noise(geometry.parameters[p].part.whole_index(i) + 11 * step) *
                                                    static_cast<double>(geometry.ep)));
                }
            }
            accumulation.add(std::move(gradients));
            optimizer.step(std::move(accumulation));
            if (step == 0) { sk::checkpoint::save(rank, to, 1, state); }
        }
        for (const auto& parameter : layer.parameters()) {
            std::vector<float> whole(parameter.shape.numel());
            layer.read_full(parameter.name, whole);
            if (rank.rank() == 0) { values[std::string(parameter.name)] = whole; }
        }
    });
    return values;
}

}  // namespace

TEST_CASE("experts: Muon takes each expert's matrix, with the bits of one rank and states that any ep loads") {
    const Folder folder;
    const auto expected = muon(Mesh{sk::DeviceMesh{1, 1}, 1}, sk::DynamicPolicy(sk::NoShard{}), "", folder.file("0"));
    CHECK(expected.at("kept")[3] == static_cast<float>(noise(6)));
    std::size_t number = 1;
    for (const auto& on : {std::array<std::size_t, 3>{2, 1, 2}, {4, 1, 2}, {4, 1, 4}, {2, 3, 2}, {4, 1, 1}}) {
        const std::size_t dp = on[0], tp = on[1], ep = on[2];
        for (const auto& policy : {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::FullShard{}),
                                   sk::DynamicPolicy(sk::ShardOptimizer{})}) {
            CAPTURE(dp);
            CAPTURE(tp);
            CAPTURE(ep);
            CAPTURE(policy.name());
            const Mesh mesh{sk::DeviceMesh{dp, tp}, ep};
            const std::string own = folder.file(std::to_string(number++));
            CHECK(muon(mesh, policy, "", own) == expected);
            CHECK(contents(own) == contents(folder.file("0")));
            CHECK(muon(mesh, policy, folder.file("0"), "") == expected);
        }
    }
}

TEST_CASE("experts: a state goes to another ep without a file") {
    const auto kinds = all_kinds();
    sk::threads::run(Mesh{sk::DeviceMesh{4, 1}, 2}, [&](auto& rank) {
        sk::MeshRank<Mesh> other{Mesh{sk::DeviceMesh{2, 2}, 2}, rank.world(), {}, rank.streams()};
        const sk::DynamicPolicy full(sk::TreeSums<sk::FullShard>{sk::Slices{4}});
        const sk::DynamicPolicy other_policy(sk::TreeSums<sk::ShardGradOp>{sk::Slices{4}});
        Training from(rank, full, full);
        Training to(other, other_policy, other_policy);
        from.step(0);
        to.step(3);  // the target's own moments and number of steps, which must not stay
        sk::checkpoint::State source{from.model, from.optimizer};
        sk::checkpoint::State target{to.model, to.optimizer};
        sk::reshard(rank, source, target);
        CHECK(sk::hash_values(from.model) == sk::hash_values(to.model));
        CHECK(sk::hash_values(from.optimizer) == sk::hash_values(to.optimizer));
        from.step(1);
        CHECK(sk::hash_values(from.model) != sk::hash_values(to.model));
        sk::reshard(rank, source, target);
        CHECK(sk::hash_values(from.model) == sk::hash_values(to.model));
    });
}

namespace {

/// Meshes of up to 8 ranks and policies, with experts on one and on two ranks.
std::vector<On> all_sides() {
    std::vector<On> all;
    for (std::size_t tp = 1; tp <= 2; ++tp) {
        for (std::size_t dp = 1; dp * tp <= 8; ++dp) {
            for (std::size_t ep = 1; ep <= 2 && dp % ep == 0; ++ep) {
                for (const auto& policy :
                     {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
                      sk::DynamicPolicy(sk::ShardGradOp{}), sk::DynamicPolicy(sk::FullShard{})}) {
                    all.push_back({dp, tp, ep, policy});
                }
                if (dp / ep % 2 != 0) { continue; }
                all.push_back({dp, tp, ep, sk::DynamicPolicy(sk::HybridShard<2>{})});
                all.push_back({dp, tp, ep, sk::DynamicPolicy(sk::HybridOptimizer<2>{})});
            }
        }
    }
    return all;
}

}  // namespace

TEST_CASE("experts: a state goes to any mesh, ep and policy without a file, with the values that were saved") {
    struct Rank {
        sk::MeshRank<Mesh> rank;
        Training training;
        sk::checkpoint::State state;

        Rank(const On& on, const sk::Communicator& world)
            : rank(on.mesh(), world),
              training(rank, on.policy, on.policy),
              state(training.model, training.optimizer) {}
        auto hashes() { return std::pair(sk::hash_values(training.model), sk::hash_values(training.optimizer)); }
    };
    const Folder folder;
    decltype(std::declval<Rank&>().hashes()) saved, begun;
    sk::threads::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        Rank alone({1, 1, 1, all_kinds()[0].policy}, rank.world());
        begun = alone.hashes();
        alone.training.step(0);
        saved = alone.hashes();
        sk::checkpoint::save(alone.rank, folder.file("first"), 1, alone.state);
    });
    CHECK(begun.first != saved.first);
    CHECK(begun.second != saved.second);
    const std::vector<On> sides = all_sides();
    const std::size_t sources = test_size::complete() ? 1 : 11;
    const std::size_t destinations = test_size::complete() ? 1 : 23;
    std::size_t pairs = 0;
    for (std::size_t i = 0; i < sides.size(); i += sources) {
        const On& from = sides[i];
        CAPTURE(from.mesh().describe());
        CAPTURE(from.policy.name());
        std::string wrong;
        std::size_t number = 0;
        sk::threads::run(sk::DeviceMesh<8>{}, [&](auto& rank) {
            const auto part = [&](const On& on, std::size_t first) {
                const bool is_in = rank.rank() >= first && rank.rank() - first < on.dp * on.tp;
                const auto ranks = sk::split(rank.world(), is_in ? 0 : 1, rank.rank(), "part");
                return is_in ? std::make_unique<Rank>(on, ranks) : nullptr;
            };
            const auto source = part(from, 0);
            if (source != nullptr) {
                sk::checkpoint::load(source->rank, folder.file("first/step-00000001"), source->state);
            }
            for (std::size_t j = i % destinations; j < sides.size(); j += destinations) {
                const On& to = sides[j];
                const std::size_t first = j % 2 == 0 ? 0 : 8 - to.dp * to.tp;
                const auto destination = part(to, first);
                sk::reshard(rank, source == nullptr ? nullptr : &source->state,
                            destination == nullptr ? nullptr : &destination->state);
                if (destination != nullptr && destination->hashes() != saved && rank.rank() == first) {
                    wrong += to.mesh().describe() + " " + std::string(to.policy.name()) + "; ";
                }
                if (rank.rank() == 0) { ++number; }
            }
        });
        CHECK(wrong == "");
        pairs += number;
    }
    CHECK((!test_size::complete() || pairs == sides.size() * sides.size()));
    CHECK(pairs >= sides.size() / 5);
}

TEST_CASE(
    "experts: the plan of a step is what ranks log, with the axes of both meshes, and its memory what they take") {
    for (const On& on : all_kinds()) {
        CAPTURE(on.mesh().describe());
        CAPTURE(on.policy.name());
        std::map<std::string, std::uint64_t> planned, logged;
        sk::threads::run(on.mesh(), [&](auto& rank) {
            Training training(rank, on.policy, on.policy);
            training.step(0);
            rank.traffic().clear();
            training.step(1);
            if (rank.rank() != 0) { return; }
            const std::size_t microbatches = sk::slice_order(training.model).microbatches();
            const sk::Plan plan =
                sk::plan(training.model, {.microbatches = microbatches, .windows_per_microbatch = 1});
            for (const auto& [verb, axes, traffic] : plan.traffic.rows()) {
                planned[std::string(name(verb)) + " over " + axes.label()] += traffic.payload.value;
            }
            for (const auto& row : rank.traffic().entries()) {
                logged[std::string(name(row.verb)) + " over " + row.axes] += row.payload.value;
            }
        });
        CHECK(planned == logged);
        if (on.ep > 1 && on.dp > on.ep) { CHECK(planned.size() >= 3); }
    }
}

TEST_CASE(
    "experts: files of Hugging Face with a tensor for each expert, as Mixtral's, saved on one ep and loaded on "
    "another") {
    const Folder folder;
    // Names of MixtralForCausalLM: w1 and w3 are the gate and up projections, w2 the one down.
    const auto mixtral = [](std::string_view path, const sk::ParameterRecord& parameter) {
        const std::string before = "model.layers." + std::string(path.substr(std::string_view("layers.").size())) +
                                   ".block_sparse_moe.experts.";
        const std::string behind = "." + std::string(parameter.name) + ".weight";
        return sk::checkpoint::stored_each([&](std::size_t e) { return before + std::to_string(e) + behind; },
                                           parameter.shape);
    };
    const auto with_layer = [](std::size_t dp, std::size_t tp, std::size_t ep, const auto& f) {
        sk::threads::run(Mesh{sk::DeviceMesh{dp, tp}, ep}, [&](auto& rank) {
            sk::Sharded<sk::TensorList<float>, sk::FullShard> layer(
                rank, "layers.3",
                {{"w1", {4, 6, 2}, {.tp = sk::tp::Split<1>::placement, .experts = true}},
                 {"w2", {4, 2, 6}, {.tp = sk::tp::Split<2>::placement, .experts = true}},
                 {"w3", {4, 6, 2}, {.tp = sk::tp::Split<1>::placement, .experts = true}}});
            f(rank, layer);
        });
    };
    std::string first;
    for (const auto& on : {std::array<std::size_t, 3>{1, 1, 1}, {4, 1, 2}, {2, 2, 2}, {4, 2, 4}}) {
        const std::size_t dp = on[0], tp = on[1], ep = on[2];
        const std::string file = folder.file("saved.safetensors");
        with_layer(dp, tp, ep, [&](auto& rank, auto& layer) {
            layer.initialize([](auto, auto name, std::uint64_t i) {
                return static_cast<double>(i) + 100 * static_cast<double>(name[1] - '0');
            });
            sk::Model model{layer};
            sk::checkpoint::save_model(rank, file, model, {.names = mixtral, .replace = true});
        });
        const sk::safetensors::File saved(file);
        std::string all;
        for (const auto& tensor : saved.tensors()) { all += tensor.name + tensor.shape.describe() + '\n'; }
        if (first.empty()) { first = all; }
        CHECK(all == first);
        CHECK(has(all, "model.layers.3.block_sparse_moe.experts.2.w1.weight[6, 2]\n"));
        std::vector<float> values(12);
        saved.read("model.layers.3.block_sparse_moe.experts.3.w2.weight", std::span<float>(values));
        for (std::size_t i = 0; i < values.size(); ++i) { CHECK(values[i] == static_cast<float>(36 + i + 200)); }
        with_layer(8, 1, 4, [&](auto& rank, auto& layer) {
            sk::Model model{layer};
            sk::checkpoint::load_model(rank, file, model, {.names = mixtral});
            std::vector<float> w3(48);
            layer.read_full("w3", w3);
            for (std::size_t i = 0; i < w3.size(); ++i) { CHECK(w3[i] == static_cast<float>(i + 300)); }
        });
    }
}

TEST_CASE("experts: shards() say where in the whole stack the elements of a rank are") {
    std::map<std::string, std::vector<int>> seen;
    std::mutex guard;
    sk::threads::run(Mesh{sk::DeviceMesh{4, 2}, 2}, [&](auto& rank) {
        const sk::DynamicPolicy policy(sk::FullShard{});
        Training training(rank, policy, policy);
        training.experts.initialize([](auto, auto, std::uint64_t i) { return static_cast<double>(i); });
        for (const sk::ShardInfo& info : training.experts.shards()) {
            if (info.replica != 0) { continue; }
            const std::scoped_lock lock(guard);
            auto& of = seen[info.parameter];
            of.resize(info.shape.numel());
            for (const auto& box : info.boxes) {
                const auto* values = static_cast<const float*>(info.data) + (box.range.begin - info.range.begin);
                for (std::size_t i = 0; i < box.range.size(); ++i) {
                    std::size_t whole = 0;  // of element i of the box, row-major
                    std::size_t stride = 1, inner = 1;
                    for (std::size_t d = box.rank; d > 0; --d) {
                        whole += (box.offsets[d - 1] + i / inner % box.extents[d - 1]) * stride;
                        inner *= box.extents[d - 1];
                        stride *= info.shape.extents[d - 1];
                    }
                    CHECK(values[i] == static_cast<float>(whole));
                    ++of.at(whole);
                }
            }
        }
    });
    CHECK(seen.size() == 4);
    for (const auto& [name, times] : seen) {
        for (const int one : times) { CHECK(one == 1); }
    }
}

}  // namespace experts_state_test
