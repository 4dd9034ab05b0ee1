// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/average/moving_average.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/combined_optimizer.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>

#include "files_in_cache.hpp"
#include "written_tensors.hpp"

/// Random trainings that are resumed as others: tensors in other groups, at other paths, under names of the user's;
/// optimizers of each tensor in other formats, alone or combined; parts of a state; averages; files with fewer rows.
/// With one gradient throughout AdamW moves every element by its rate in each step, and SGD by the sum of a series,
/// so that each tensor shows by its next steps whether its states and its numbers are its own.
namespace resumes {

namespace sk = shardkit;

constexpr double adamw_rate = 0.25;
constexpr double sgd_rate = 0.125;
constexpr double momentum = 0.5;

struct Kind {
    bool adamw = true;
    sk::StateFormat format = sk::StateFormat::full;

    friend auto operator<=>(const Kind&, const Kind&) = default;
};
struct Tensor {
    std::string stored;  ///< its name in the files, by which it is the same on both sides
    std::vector<std::size_t> extents;
    bool frozen = false;
    Kind kind;
};
struct Group {
    std::string path;
    std::vector<Tensor> tensors;  ///< called t0, t1, ...
    std::size_t steps = 0;        ///< how many it takes part in
};
struct Side {
    std::vector<Group> groups;
    std::size_t ranks = 1;
    bool sharded = false;
    bool averages = false;
    std::vector<std::size_t> order;  ///< of the optimizer's parts
};
struct Case {
    Side saved, loaded;
    bool subset = false;
    bool average_behind_load = false;
    std::size_t steps = 1;
};

class Maker {
  public:
    explicit Maker(std::uint64_t seed) : random_(seed) {}
    std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }

    Case make() {
        Case made;
        made.steps = 1 + below(5);
        made.subset = below(2) == 0;
        made.average_behind_load = below(2) == 0;
        std::vector<Tensor> tensors(1 + below(5));
        for (std::size_t t = 0; t < tensors.size(); ++t) {
            tensors[t].stored = below(3) == 0 ? "layers." + std::to_string(t) + ".t0" : "stored" + std::to_string(t);
            for (std::size_t d = 1 + below(2); d > 0; --d) { tensors[t].extents.push_back(1 + below(40)); }
            tensors[t].frozen = t > 0 && below(5) == 0;
            tensors[t].kind = kind();
        }
        made.saved.groups = grouped(tensors, made.steps);
        // What is another one's on the other side.
        const bool same_rules = below(4) != 0;
        for (Tensor& tensor : tensors) {
            const bool adamw = tensor.kind.adamw;
            tensor.kind = kind();
            if (same_rules) { tensor.kind.adamw = adamw; }
            if (made.subset && below(5) == 0) { tensor.frozen = !tensor.frozen; }
        }
        if (made.subset && tensors.size() > 1 && below(3) == 0) { tensors.pop_back(); }
        if (made.subset && below(3) == 0) { tensors.push_back({"new", {1 + below(40)}, false, kind()}); }
        tensors.front().frozen = false;
        std::shuffle(tensors.begin(), tensors.end(), random_);
        made.loaded.groups = grouped(tensors, 0);
        const bool averages = below(3) == 0;
        for (Side* side : {&made.saved, &made.loaded}) {
            side->ranks = 1 + below(4) / 3;
            side->sharded = below(2) == 0;
            side->averages = averages && (!made.subset || below(3) != 0);
            side->order.resize(6);
            for (std::size_t i = 0; i < 6; ++i) { side->order[i] = i; }
            std::shuffle(side->order.begin(), side->order.end(), random_);
        }
        return made;
    }

  private:
    Kind kind() {
        constexpr std::array formats{sk::StateFormat::full, sk::StateFormat::full, sk::StateFormat::bf16,
                                     sk::StateFormat::block8};
        const bool adamw = below(3) != 0;
        return {adamw, adamw ? formats[below(4)] : sk::StateFormat::full};
    }
    std::vector<Group> grouped(const std::vector<Tensor>& tensors, std::size_t steps) {
        std::vector<Group> groups;
        for (const Tensor& tensor : tensors) {
            if (groups.empty() || below(2) == 0) {
                groups.push_back({"layers." + std::to_string(groups.size()), {}, steps == 0 ? 0 : 1 + below(steps)});
            }
            groups.back().tensors.push_back(tensor);
        }
        std::shuffle(groups.begin(), groups.end(), random_);
        return groups;
    }
    std::mt19937_64 random_;
};

struct Training {
    using Layer = sk::Sharded<sk::TensorList<float>, sk::DynamicPolicy>;
    using P = sk::DefaultPrecision<float>;

    Training(sk::Rank& rank, const Side& of, double first)
        : side(of), layers(make(rank, of, false)), averages(make(rank, of, true)), model(layers) {
        model.initialize([first](auto, auto, auto i) { return first + static_cast<double>(i % 7); });
        std::set<Kind> kinds;
        for (const Group& group : of.groups) {
            for (const Tensor& tensor : group.tensors) {
                if (!tensor.frozen) { kinds.insert(tensor.kind); }
            }
        }
        const std::vector<Kind> sorted(kinds.begin(), kinds.end());
        for (const std::size_t number : of.order) {
            if (number < sorted.size()) { parts.push_back(part(sorted[number], sorted.size())); }
        }
        if (parts.size() > 1) {
            std::vector<std::reference_wrapper<sk::Optimizer>> all;
            for (auto& each : parts) { all.emplace_back(*each); }
            combined = std::make_unique<sk::CombinedOptimizer>(model, all);
        }
    }
    sk::Optimizer& optimizer() { return combined ? *combined : *parts.front(); }
    sk::checkpoint::State state() {
        if (!side.averages) { return {model, optimizer()}; }
        sk::Model averaged{averages};
        return {sk::Model{model, averaged}, optimizer()};
    }
    void average() { moving.emplace(sk::Model{averages}, model); }
    /// One step with gradients of 1, without the groups that `skips`.
    void step(const std::function<bool(const Group&)>& skips) {
        sk::Accumulation accumulation{model};
        for (std::size_t g = 0; g < layers.size(); ++g) {
            if (!trains(side.groups[g])) { continue; }
            if (skips(side.groups[g])) {
                accumulation.skip(layers[g]);
                continue;
            }
            auto gradients = accumulation.gradients(layers[g]);
            for (std::size_t p = 0; p < side.groups[g].tensors.size(); ++p) {
                for (float& each : gradients.view(p)) { each = 1; }
            }
            accumulation.add(std::move(gradients));
        }
        optimizer().step(std::move(accumulation));
    }
    /// Whole tensors by their names in the files, averages behind "avg.".
    std::map<std::string, std::vector<float>> values() {
        std::map<std::string, std::vector<float>> all;
        const auto add = [&](std::vector<Layer>& of, const std::string& before) {
            for (std::size_t g = 0; g < of.size(); ++g) {
                for (std::size_t p = 0; p < side.groups[g].tensors.size(); ++p) {
                    std::vector<float> whole(of[g].parameters()[p].shape.numel());
                    of[g].read_full(p, whole);
                    all[before + side.groups[g].tensors[p].stored] = std::move(whole);
                }
            }
        };
        add(layers, "");
        if (side.averages) { add(averages, "avg."); }
        return all;
    }
    static bool trains(const Group& group) {
        return std::ranges::any_of(group.tensors, [](const Tensor& tensor) { return !tensor.frozen; });
    }

    const Side& side;
    std::vector<Layer> layers, averages;
    sk::Model model;
    std::vector<std::unique_ptr<sk::Optimizer>> parts;
    std::unique_ptr<sk::CombinedOptimizer> combined;
    std::optional<sk::MovingAverage> moving;

  private:
    static std::vector<Layer> make(sk::Rank& rank, const Side& of, bool averages) {
        std::vector<Layer> layers;
        for (const Group& group : of.groups) {
            if (averages && !of.averages) { break; }
            std::vector<sk::NamedTensor> tensors;
            for (std::size_t t = 0; t < group.tensors.size(); ++t) {
                sk::ParameterAttributes attributes;
                attributes.frozen = averages || group.tensors[t].frozen;
                tensors.emplace_back("t" + std::to_string(t), group.tensors[t].extents, attributes);
            }
            layers.emplace_back(rank, (averages ? "avg." : "") + group.path, sk::TensorList<float>(tensors),
                                typename Layer::Options{of.sharded ? sk::DynamicPolicy(sk::FullShard{})
                                                                   : sk::DynamicPolicy(sk::NoShard{})});
        }
        return layers;
    }
    /// The optimizer of one of so many kinds.
    std::unique_ptr<sk::Optimizer> part(const Kind& kind, std::size_t kinds) {
        const sk::ParamGroup others{.matches =
                                        [this, kind](std::string_view path, std::string_view name) {
                                            for (const Group& group : side.groups) {
                                                if (group.path != path) { continue; }
                                                return group.tensors[std::stoul(std::string(name.substr(1)))].kind !=
                                                       kind;
                                            }
                                            return true;
                                        },
                                    .updated_by = sk::UpdatedBy::another};
        std::vector<sk::ParamGroup> groups;
        if (kinds > 1) { groups.push_back(others); }
        if (!kind.adamw) {
            const sk::SgdOptions options{
                .learning_rate = sgd_rate, .rule = sk::Momentum::classical, .momentum = momentum};
            return std::make_unique<sk::SGD>(model, options, groups);
        }
        const auto made = [&](auto format) -> std::unique_ptr<sk::Optimizer> {
            constexpr sk::StateFormat of = decltype(format)::value;
            const sk::AdamWOptions options{
                .learning_rate = adamw_rate, .beta1 = 0.9, .beta2 = 0.5, .epsilon = 1e-30, .weight_decay = 0};
            return std::make_unique<sk::AdamW>(model, sk::states_in<of>, options, groups);
        };
        using enum sk::StateFormat;
        if (kind.format == full) { return made(std::integral_constant<sk::StateFormat, full>{}); }
        if (kind.format == bf16) { return made(std::integral_constant<sk::StateFormat, bf16>{}); }
        return made(std::integral_constant<sk::StateFormat, block8>{});
    }
};

inline sk::checkpoint::TensorNames names_of(const Side& side) {
    return [&side](std::string_view path, const sk::ParameterRecord& parameter) {
        const std::string before = path.starts_with("avg.") ? "avg." : "";
        for (const Group& group : side.groups) {
            if (group.path != path.substr(before.size())) { continue; }
            const Tensor& tensor = group.tensors[std::stoul(std::string(parameter.name.substr(1)))];
            return sk::checkpoint::stored(before + tensor.stored, parameter.shape);
        }
        throw std::logic_error("names: a parameter that no group has");
    };
}

/// f(rank) on so many ranks.
template <class F>
void on_ranks(std::size_t ranks, const F& f) {
    sk::threads::run(sk::DeviceMesh{ranks}, f);
}

enum class Outcome : std::uint8_t { refused, loaded };

/// A file of others with fewer rows of each tensor, or none.
inline void load_fewer_rows(Maker& maker, const std::string& folder) {
    const std::size_t rows = 1 + maker.below(6);
    const std::size_t stored = maker.below(rows + 1);
    std::vector<float> values(stored * 3);
    for (std::size_t i = 0; i < values.size(); ++i) { values[i] = static_cast<float>(i) + 0.5F; }
    written_tensors::write_file(folder + "/fewer/model.safetensors", {{"g.t", {stored, 3}, values}});
    values.resize(rows * 3, -1);
    on_ranks(1 + maker.below(3), [&](auto& rank) {
        using Layer = sk::Sharded<sk::TensorList<float>, sk::FullShard>;
        Layer layer(rank, "g", sk::TensorList<float>{{"t", {rows, 3}}});
        layer.initialize([](auto, auto, auto) { return -1.0; });
        sk::checkpoint::load_model(rank, folder + "/fewer", sk::Model{layer},
                                   {.grown = [](std::string_view) { return true; }});
        std::vector<float> whole(rows * 3);
        layer.read_full("t", whole);
        if (whole != values) { throw std::logic_error("other rows"); }
    });
}

/// One case in a folder of its own. @throws std::logic_error where a promise is not kept
inline Outcome run(std::uint64_t seed, const std::string& folder) {
    Maker maker(seed);
    const Case given = maker.make();
    if (maker.below(8) == 0) { load_fewer_rows(maker, folder); }
    const auto require = [&](bool holds, const std::string& what) {
        if (!holds) { throw std::logic_error("seed " + std::to_string(seed) + ": " + what); }
    };
    files_in_cache::InCache files;
    std::map<std::string, std::vector<float>> saved;
    on_ranks(given.saved.ranks, [&](auto& rank) {
        Training training(rank, given.saved, 1);
        if (given.saved.averages) { training.average(); }
        for (std::size_t step = 0; step < given.steps; ++step) {
            training.step([&](const Group& group) { return step + group.steps < given.steps; });
            if (given.saved.averages) { training.moving->update(0.5); }
        }
        sk::checkpoint::save(rank, folder + "/run", 1, training.state(),
                             {.names = names_of(given.saved), .files = &files});
        auto values = training.values();
        if (rank.rank() == 0) { saved = std::move(values); }
    });
    // What each tensor has in the files.
    std::map<std::string, const Tensor*> stored;
    std::map<std::string, std::size_t> steps;
    for (const Group& group : given.saved.groups) {
        for (const Tensor& tensor : group.tensors) {
            stored[tensor.stored] = &tensor;
            steps[tensor.stored] = tensor.frozen ? 0 : group.steps;
        }
    }
    bool is_whole = given.saved.averages == given.loaded.averages;
    std::size_t found = 0;
    for (const Group& group : given.loaded.groups) {
        for (const Tensor& tensor : group.tensors) {
            const auto known = stored.find(tensor.stored);
            steps.try_emplace(tensor.stored, 0);  // ranks look them up at once
            is_whole = is_whole && known != stored.end() && known->second->frozen == tensor.frozen;
            if (known == stored.end()) { continue; }
            ++found;
            const bool both = !known->second->frozen && !tensor.frozen;
            if (!both || known->second->kind.adamw == tensor.kind.adamw) { continue; }
            // AdamW's states and SGD's have no name in common: of a subset it has none.
            is_whole = false;
            steps[tensor.stored] = 0;
        }
    }
    is_whole = is_whole && found == stored.size();
    const bool refuses = !given.subset && !is_whole;
    auto outcome = Outcome::loaded;
    on_ranks(given.loaded.ranks, [&](auto& rank) {
        Training training(rank, given.loaded, 100);
        const bool averages = given.loaded.averages;
        if (averages && !given.average_behind_load) { training.average(); }
        auto expected = training.values();
        try {
            sk::checkpoint::load(rank, folder + "/run/step-00000001", training.state(),
                                 {.names = names_of(given.loaded), .subset = given.subset});
            require(!refuses, "loaded, expected a refusal");
        } catch (const sk::FileError& error) {
            require(refuses, error.what());
            require(training.values() == expected, "a refused load has changed something");
            if (rank.rank() == 0) { outcome = Outcome::refused; }
            return;
        }
        for (auto& [name, values] : expected) {
            if (const auto its = saved.find(name); its != saved.end()) { values = its->second; }
        }
        require(training.values() == expected, "other values");
        bool averages_go_on = true;
        if (averages && given.average_behind_load) {
            bool in_part = false;
            for (const Group& group : given.loaded.groups) {
                std::size_t loaded = 0;
                for (const Tensor& tensor : group.tensors) { loaded += saved.count("avg." + tensor.stored); }
                in_part = in_part || (loaded > 0 && loaded < group.tensors.size());
                for (const Tensor& tensor : group.tensors) {
                    if (loaded == 0) { expected["avg." + tensor.stored] = expected[tensor.stored]; }
                }
            }
            try {
                training.average();
                require(!in_part, "a group of averages that are loaded in part");
                require(training.values() == expected, "other averages");
            } catch (const std::invalid_argument&) {
                require(in_part, "averages are refused");
                averages_go_on = false;
            }
        }
        // Averages of weights that a load has replaced.
        const bool stale = averages && !given.average_behind_load && !given.saved.averages && found > 0;
        for (std::size_t g = 0; g < given.loaded.groups.size(); ++g) {
            std::size_t most = 0;
            for (const Tensor& tensor : given.loaded.groups[g].tensors) {
                if (!tensor.frozen) { most = std::max(most, steps.at(tensor.stored)); }
            }
            require(
                !training.trains(given.loaded.groups[g]) || training.optimizer().steps(training.layers[g]) == most,
                "another count of steps");
        }
        for (std::size_t step = 1; step <= 2; ++step) {
            training.step([](const Group&) { return false; });
            if (averages && averages_go_on) {
                try {
                    training.moving->update(0.5);
                    require(!stale, "an average of weights that are gone");
                } catch (const sk::UsageError&) {
                    require(stale, "the update of averages is refused");
                    averages_go_on = false;
                }
            }
            const auto now = training.values();
            for (const Group& group : given.loaded.groups) {
                for (const Tensor& tensor : group.tensors) {
                    const auto before = static_cast<double>(steps.at(tensor.stored));
                    const auto known = stored.find(tensor.stored);
                    const bool exact = tensor.kind.format == sk::StateFormat::full &&
                                       (known == stored.end() || known->second->frozen ||
                                        known->second->kind.format == sk::StateFormat::full);
                    const double series = (1 - std::pow(momentum, before + double(step))) / (1 - momentum);
                    const double moved = tensor.frozen ? 0 : tensor.kind.adamw ? adamw_rate : sgd_rate * series;
                    const auto& last = expected[tensor.stored];
                    const auto& its = now.at(tensor.stored);
                    for (std::size_t i = 0; i < its.size(); ++i) {
                        require(std::abs(double(last[i]) - double(its[i]) - moved) < (exact ? 2e-5 : 0.02),
                                "'" + tensor.stored + "' moved by " + std::to_string(last[i] - its[i]) +
                                    ", expected " + std::to_string(moved));
                    }
                    if (!averages || !averages_go_on) { continue; }
                    const auto& average = expected["avg." + tensor.stored];
                    const auto& averaged = now.at("avg." + tensor.stored);
                    for (std::size_t i = 0; i < its.size(); ++i) {
                        require(std::abs(0.5F * (average[i] + its[i]) - averaged[i]) < 2e-5F,
                                "the average of '" + tensor.stored + "'");
                    }
                }
            }
            expected = now;
        }
    });
    return outcome;
}

}  // namespace resumes
