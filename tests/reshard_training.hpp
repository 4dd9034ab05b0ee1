// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/checkpoint.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/moving_average.hpp>
#include <shardkit/muon.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/reshard.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verbs/split.hpp>

#include "checkpoint_training.hpp"
#include "row_rule.hpp"
#include "temporary_folder.hpp"

/// States on meshes over parts of one world, and what brings one to another.
namespace reshard_training {

namespace sk = shardkit;
using checkpoint_training::Case;
using checkpoint_training::Mesh;

template <class Policy>
Case case_of(const Policy& policy) {
    const sk::DynamicPolicy chosen(policy);
    for (const Case& each : checkpoint_training::cases()) {
        if (each.policy.name() == chosen.name()) { return each; }
    }
    throw std::logic_error("no case has this policy");
}

/// checkpoint_training with AdamW's states and a loss scale.
template <class T>
struct WithAdamW {
    using Element = T;
    using On = checkpoint_training::Training<T, checkpoint_training::WithAdamW>;
};

template <class T>
struct Weight : sk::Param<"weight", T, 120, 4>, sk::tp::Split<0> {};
template <class T>
struct Bias : sk::Param<"bias", T, 19> {};
template <class T>
using Net = sk::Params<Weight<T>, Bias<T>>;
struct Square : sk::Param<"square", float, 5, 120>, sk::tp::Split<1> {};
struct Codes : sk::Param<"codes", std::byte, 31, 9>, sk::Frozen {};

/// What else a state may have: Muon's momentum, what a rule keeps of whole matrices, a moving average, opaque bytes,
/// a loss scale, and bytes of the user.
template <class T>
struct WithMuon {
    using Layer = sk::Sharded<Net<T>, sk::DynamicPolicy>;
    using AveragePrecision =
        std::conditional_t<std::is_same_v<T, float>, sk::DefaultPrecision<float>, sk::Precision<float, T>>;
    using Average = sk::Sharded<Net<float>, sk::DynamicPolicy, AveragePrecision>;

    WithMuon(sk::Rank& rank, const sk::DynamicPolicy& policy)
        : layer(rank, "layer", {}, {policy}),
          rows(rank, "rows", {}, {policy}),
          base(rank, "base", {}, {policy}),
          average_layer(rank, "average.layer", {},
                        {.policy = average_policy(policy), .frozen = Average::Group::all()}),
          model(layer),
          of_rows(rows),
          averages(average_layer),
          optimizer(model, {.learning_rate = 0.1}, {.learning_rate = 0.01}),
          row_optimizer(of_rows, sk::HostProducts{}, {.learning_rate = 0.1}),
          average(averages, model),
          loss_scale(rank, {.initial = 32}),
          state(sk::Model{layer, rows, base, average_layer}, optimizer, loss_scale) {
        state.add(row_optimizer).blob("sampler", blob);
    }
    /// One that keeps at rest what the model's policy updates.
    static sk::DynamicPolicy average_policy(const sk::DynamicPolicy& policy) {
        const std::size_t over = case_of(policy).states;
        return over == 0                                   ? sk::DynamicPolicy(sk::FullShard{})
               : over == 1                                 ? sk::DynamicPolicy(sk::NoShard{})
               : over > checkpoint_training::across_groups ? sk::DynamicPolicy(sk::SecondaryShard<2>{})
                                                           : policy;
    }
    /// One rank's: values that all differ, and a step of each part.
    void begin() {
        layer.initialize(
            [](auto, auto name, std::uint64_t i) { return static_cast<double>(i * i % 997 + name.size()); });
        rows.initialize([](auto, auto, std::uint64_t i) { return static_cast<double>(i); });
        std::vector<std::byte> codes(31 * 9);
        for (std::size_t i = 0; i < codes.size(); ++i) { codes[i] = static_cast<std::byte>(i * 7 % 256); }
        base.load(Codes{}, codes);
        const auto step = [](auto& groups, auto& group, auto& with) {
            sk::Accumulation accumulation{groups};
            auto gradients = accumulation.gradients(group);
            for (std::size_t p = 0; p < group.parameters().size(); ++p) {
                auto view = gradients.view(p);
                using G = std::remove_reference_t<decltype(view.data()[0])>;
                for (std::size_t i = 0; i < view.size(); ++i) {
                    view.data()[i] = G(static_cast<float>(i * i % 17) / 8 - 1);
                }
            }
            accumulation.add(std::move(gradients));
            with.step(sk::reduce(std::move(accumulation), sk::mean));
        };
        step(model, layer, optimizer);
        step(of_rows, rows, row_optimizer);
        average.update(0.75);
        blob = {1, 2, 3};
    }

    Layer layer;
    sk::Sharded<Square, sk::DynamicPolicy> rows;
    sk::Sharded<Codes, sk::DynamicPolicy> base;
    Average average_layer;
    sk::Model model;
    sk::Model of_rows;
    sk::Model averages;
    sk::Muon optimizer;
    sk::rules::MatrixOptimizer<row_rule::RowRule> row_optimizer;
    sk::MovingAverage average;
    sk::LossScale loss_scale;
    std::vector<std::uint8_t> blob{9};
    sk::checkpoint::State state;
};
template <class T>
struct WithMuonOf {
    using On = WithMuon<T>;
};

/// A mesh over the ranks from `first` on, and a policy.
struct Side {
    Mesh mesh;
    Case on;
    std::size_t first = 0;

    bool has(std::size_t rank) const { return rank >= first && rank - first < mesh.size(); }
    std::string kind() const {
        return std::to_string(mesh.dp()) + "x" + std::to_string(mesh.tp()) + "x" + std::to_string(mesh.cp()) + " " +
               std::string(on.policy.name());
    }
    std::string text() const { return kind() + " from " + std::to_string(first); }
};
/// All of up to `world` ranks, but for those of which tp divides no tensor.
inline std::vector<Side> sides(std::size_t world) {
    std::vector<Side> all;
    for (std::size_t ranks = 1; ranks <= world; ++ranks) {
        for (const Mesh& mesh : checkpoint_training::meshes(ranks)) {
            if (mesh.tp() == 7) { continue; }
            for (const Case& each : checkpoint_training::cases(mesh)) { all.push_back({mesh, each, 0}); }
        }
    }
    return all;
}

/// This rank on the side's mesh; null where it has no place there. Collective over the world.
template <class Rank>
auto part_of(Rank& rank, const Side& side) {
    using Part = sk::MeshRank<Mesh>;
    const bool is_in = side.has(rank.rank());
    const auto ranks = sk::split(rank.world(), is_in ? 0 : 1, rank.rank(), "part");
    return is_in ? std::make_unique<Part>(side.mesh, ranks, sk::RankOptions{}, rank.streams())
                 : std::unique_ptr<Part>();
}

/// By tensor, 1 for each element that a rank of a side keeps of it.
using Kept = std::map<std::string, std::vector<unsigned char>>;
/// By the documented rules alone: row-major ranks, shards over `over` consecutive ones of dp; a shard that is cut
/// across groups has its pieces in the order of the groups, and of cp.
template <class Training>
Kept kept_elements(Training& training, const Side& side, std::size_t rank, std::size_t over) {
    const std::size_t dp_i = rank / (side.mesh.cp() * side.mesh.tp());
    Kept kept;
    const auto add = [&](auto& group) {
        const auto layout = group.layout();
        const std::size_t cp = side.mesh.cp();
        const bool cut = over > checkpoint_training::across_groups;
        const std::size_t within = over == 0 ? side.mesh.dp() : over % checkpoint_training::across_groups;
        const std::size_t pieces = cut ? side.mesh.dp() / within * cp : 1;
        const std::size_t piece = cut ? dp_i / within * cp + rank % cp : 0;
        const std::size_t numel = layout.buffer_numel() / (within * pieces);
        const std::size_t number = dp_i % within * pieces + piece;
        const sk::IndexRange own{number * numel, (number + 1) * numel};
        for (const sk::PlacedParameter& parameter : group.parameters()) {
            std::vector<unsigned char>& of = kept[group.path() + "." + std::string(parameter.name)];
            of.resize(parameter.shape.numel());
            const sk::IndexRange its = sk::intersect(own, parameter.range);
            if (its.empty()) { continue; }
            const std::size_t begin = parameter.range.begin;
            parameter.part.for_each_run(its.begin - begin, its.end - begin,
                                        [&](std::size_t, std::size_t at, std::size_t run) {
                                            std::fill_n(of.begin() + static_cast<std::ptrdiff_t>(at), run, 1);
                                        });
        }
    };
    add(training.layer);
    add(training.listed);
    add(training.skipped);
    return kept;
}
/// What a rank keeps of the parameters, and of masters and states; nothing where it has no training.
struct KeptKinds {
    Kept parameters, states;

    template <class Training>
    static KeptKinds of(Training* training, const Side& side, std::size_t rank) {
        if (training == nullptr) { return {}; }
        return {kept_elements(*training, side, rank - side.first, side.on.parameters),
                kept_elements(*training, side, rank - side.first, side.on.states)};
    }
};

/// The bytes of AdamW's state that a rank lacks. A parameter comes from the model's tensor if that has its type, and
/// otherwise from the master if there is one; a master likewise. What both come from travels once.
template <class From, class To>
std::uint64_t lacking(const KeptKinds& has, const KeptKinds& needs) {
    std::uint64_t bytes = 0;
    const auto add = [&](const Kept& needed, const Kept& held, std::uint64_t size, bool frozen) {
        for (const auto& [name, elements] : needed) {
            if ((name == "layer.fixed") != frozen) { continue; }
            const auto own = held.find(name);
            std::uint64_t count = 0;
            for (std::size_t i = 0; i < elements.size(); ++i) {
                count += elements[i] & (own == held.end() ? 1U : 1U - own->second[i]);
            }
            bytes += count * size;
        }
    };
    add(needs.parameters, has.parameters, sizeof(From), true);
    add(needs.states, has.states, 2 * sizeof(float), false);
    constexpr bool from_master = sizeof(From) == 2;
    if (from_master && sizeof(To) == 2) {
        add(needs.parameters, has.parameters, sizeof(From), false);
        add(needs.states, has.states, sizeof(float), false);
    } else {
        const Kept& held = from_master ? has.states : has.parameters;
        add(needs.parameters, held, sizeof(float), false);
        if (sizeof(To) == 2 && needs.parameters != needs.states) { add(needs.states, held, sizeof(float), false); }
    }
    return bytes;
}

/// Saves what begins on one rank as the first step in `folder`.
template <class What>
void save_first(const std::string& folder, sk::checkpoint::FileCalls& files) {
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        typename What::On training(rank, sk::DynamicPolicy(sk::NoShard{}));
        training.begin();
        sk::checkpoint::save(rank, folder, 1, training.state, {.files = &files});
    });
}
/// Loads the first step in `from` and saves it in `to`, on one rank. @returns the files
template <class What>
std::map<std::string, std::string> load_and_save(const std::string& from, const std::string& to,
                                                 sk::checkpoint::FileCalls& files) {
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        typename What::On training(rank, sk::DynamicPolicy(sk::NoShard{}));
        sk::checkpoint::load(rank, from + "/step-00000001", training.state, {.files = &files});
        sk::checkpoint::save(rank, to, 1, training.state, {.files = &files});
    });
    return temporary_folder::contents(to);
}

/// Of all that a save would write of what this rank has, and of the copies that other ranks save: a hash.
template <class State>
std::uint64_t hash_of(const State& state) {
    const auto all = state.capture(sk::SourceLocation::current());
    sk::detail::Fnv hash;
    const auto add = [&](const void* bytes, std::size_t size) {
        hash.add(std::uint64_t{size});
        if (size > 0) {
            hash.add(std::hash<std::string_view>{}(std::string_view(static_cast<const char*>(bytes), size)));
        }
    };
    for (const auto& group : all.groups) {
        for (const auto& values : group->values) {
            const sk::IndexRange& range = values->loaded;
            add(range.empty() ? nullptr : values->memory(range.begin), range.size() * sk::size_of(values->type));
        }
    }
    for (const auto& number : all.all_scalars(sk::checkpoint::stored_by_path, sk::SourceLocation::current())) {
        add(number.name.data(), number.name.size());
        hash.add(number.bits);
    }
    for (const auto& [name, bytes] : all.blobs) { add(bytes->data(), bytes->size()); }
    return hash.hash;
}
/// By Side::kind and the side's rank: the hash of what it has after a load, nothing where that is not known yet.
using Loaded = std::map<std::string, std::vector<std::uint64_t>>;

/// Destinations of one source, and what each of them has to have.
struct Reshards {
    std::string first;                            ///< the folder of what the source loads
    std::map<std::string, std::string> expected;  ///< the files that each destination saves
    std::string saved;                            ///< the folder in which it does
    sk::checkpoint::FileCalls& files;
    /// Where ranks are threads: what destinations have loaded before, with a place for each. Those that are known
    /// only compare with it, in half the time.
    Loaded* loaded = nullptr;
};
/// Brings a state that the source has loaded to each destination, and saves what that has. Collective over the world.
/// @throws std::logic_error where a rank is sent other bytes than it lacks, or has or saves others than are expected
template <class From, class To, class Rank>
void reshard_to_each(Rank& rank, const Side& from, const std::vector<Side>& destinations, const Reshards& what,
                     const sk::ReshardOptions& options = {}) {
    using State = sk::checkpoint::State;
    const auto source_rank = part_of(rank, from);
    std::optional<typename From::On> source;
    if (source_rank != nullptr) {
        source.emplace(*source_rank, from.on.policy);
        sk::checkpoint::load(*source_rank, what.first + "/step-00000001", source->state, {.files = &what.files});
    }
    const State* const given = source ? &source->state : nullptr;
    constexpr bool counted = requires { typename From::Element; };
    KeptKinds has;
    if constexpr (counted) { has = KeptKinds::of(source ? &*source : nullptr, from, rank.rank()); }
    for (const Side& to : destinations) {
        const auto refuse = [&](const std::string& text) {
            throw std::logic_error(from.text() + " to " + to.text() + ": rank " + std::to_string(rank.rank()) + text);
        };
        const auto destination_rank = part_of(rank, to);
        std::optional<typename To::On> destination;
        if (destination_rank != nullptr) { destination.emplace(*destination_rank, to.on.policy); }
        const State* const taken = destination ? &destination->state : nullptr;
        std::vector<std::uint64_t>* const known = what.loaded == nullptr ? nullptr : &what.loaded->at(to.kind());
        const bool is_known = known != nullptr && !known->empty();
        // The known ones let each call make its plan.
        std::optional<sk::ReshardPlan> plan;
        if (!is_known) { plan = sk::plan_reshard(rank, given, taken, options); }
        const auto before = rank.traffic().total(sk::Verb::receive).moved;
        plan ? sk::reshard(rank, *plan, given, taken) : sk::reshard(rank, given, taken, options);
        const std::uint64_t received = rank.traffic().total(sk::Verb::receive).moved.value - before.value;
        if (plan && received != plan->received(rank.rank())) { refuse(" received other bytes than planned"); }
        if constexpr (counted) {
            const std::uint64_t lacks = lacking<typename From::Element, typename To::Element>(
                has, KeptKinds::of(destination ? &*destination : nullptr, to, rank.rank()));
            if (received != lacks) {
                refuse(" was sent " + std::to_string(received) + " bytes, and lacked " + std::to_string(lacks));
            }
        }
        if (is_known) {
            if (destination && hash_of(destination->state) != (*known)[rank.rank() - to.first]) {
                refuse(" has not what a load leaves");
            }
            continue;
        }
        if (destination) {
            sk::checkpoint::save(*destination_rank, what.saved, 1, destination->state, {.files = &what.files});
        }
        if (rank.rank() == to.first) {
            const auto found = temporary_folder::contents(what.saved);
            std::filesystem::remove_all(what.saved);
            for (const auto& [name, bytes] : what.expected) {
                if (!found.contains(name) || found.at(name) != bytes) { refuse(" saved another " + name); }
            }
            if (found.size() != what.expected.size()) { refuse(" saved more files"); }
            if (known != nullptr) { known->resize(to.mesh.size()); }
        }
        sk::barrier(rank.world());
        if (known != nullptr && destination) {
            typename To::On loads(*destination_rank, to.on.policy);
            sk::checkpoint::load(*destination_rank, what.first + "/step-00000001", loads.state,
                                 {.files = &what.files});
            (*known)[rank.rank() - to.first] = hash_of(loads.state);
        }
        if (known != nullptr) { sk::barrier(rank.world()); }
    }
}

}  // namespace reshard_training
