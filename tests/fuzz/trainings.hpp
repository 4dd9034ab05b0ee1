// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/adafactor.hpp>
#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/mesh/expert_mesh.hpp>
#include <shardkit/muon.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/plan.hpp>
#include <shardkit/policy/named_policy.hpp>
#include <shardkit/reshard.hpp>
#include <shardkit/schedule.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/loss_scale.hpp>
#include <shardkit/step/reduce.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verbs/split.hpp>
#include <shardkit/verify.hpp>

#include "files_in_cache.hpp"

/// Random trainings on two meshes, one after the other, beside the same training on one rank, whose elements and
/// norms they have to the bit. Gradients are multiples of 1/4 of which every sum is exact, and what a power of two
/// divides too, so that it does not matter what a mesh and a policy add first; or any numbers, summed in slices.
/// Optimizers that add over whole tensors are near the one rank. Some steps overflow, and some are begun and given
/// up. Between the meshes the state goes through files or from memory to memory.
namespace trainings {

namespace sk = shardkit;
using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;
using Experts = sk::ExpertMesh<Mesh, sk::dynamic>;

struct Tensor {
    std::vector<std::size_t> extents;
    sk::ParameterAttributes attributes;
};
struct Group {
    std::string path;
    std::vector<Tensor> tensors;  ///< called t0, t1, ...
    bool experts = false;
};
struct Side {
    std::size_t dp = 1, tp = 1, cp = 1, ep = 1;
    std::vector<std::string> policies;  ///< by group
    std::vector<char> releases;         ///< by group: gradients, at its update
    std::vector<std::size_t> passes;    ///< over its schedule

    std::size_t data() const { return dp * cp; }
    std::size_t ranks() const { return dp * tp * cp; }
    Experts mesh() const { return Experts(Mesh(dp, tp, cp), ep); }
    std::string text() const {
        std::string all =
            std::to_string(dp) + "x" + std::to_string(tp) + "x" + std::to_string(cp) + " ep " + std::to_string(ep);
        for (const std::string& policy : policies) { all += " " + policy; }
        return all;
    }
};
enum class Rule : std::uint8_t { adamw, sgd, nesterov, lion, adafactor, muon };
struct Step {
    std::uint64_t seed = 0;
    std::size_t microbatches = 1;
    std::vector<char> skipped;  ///< by group
    double divisor = 0;         ///< 0: mean
    double max_norm = sk::unlimited;
    sk::NormKind norm = sk::NormKind::two;
    bool initializes = false;  ///< other values, before it
    bool fails = false;        ///< a step that is begun and dropped, before it
    bool overflows = false;    ///< on one rank
    bool must_add = false;     ///< every rank, in each microbatch
};
struct Case {
    std::vector<Group> groups;
    std::array<Side, 2> sides;
    std::array<std::size_t, 2> first{};  ///< a side's first rank of the world
    Rule rule = Rule::adamw;
    sk::MasterWeights masters = sk::MasterWeights::kept;
    bool rounds = false;
    bool in_files = false;
    bool scales = false;       ///< the loss
    bool in_backward = false;  ///< groups are updated by their last add
    bool follows = false;      ///< a schedule, which the first step of a side is recorded for; steps are alike
    std::size_t slices = 0;    ///< 0: exact sums
    std::vector<Step> steps;
    std::size_t moved_before = 1;  ///< the step before which the state moves
};

class Maker {
  public:
    explicit Maker(std::uint64_t seed) : random_(seed) {}
    std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }

    Case make(bool half) {
        Case made;
        made.rule = static_cast<Rule>(below(6));
        made.slices = below(3) == 0 ? 8 : 0;
        made.scales = below(2) == 0;
        const std::size_t experts = (made.slices == 0 || !half) && below(3) == 0 ? 2 * (1 + below(3)) : 0;
        made.groups.resize(1 + below(3));
        for (std::size_t g = 0; g < made.groups.size(); ++g) {
            Group& group = made.groups[g];
            group.path = "g" + std::to_string(g);
            group.experts = experts > 0 && below(2) == 0;
            group.tensors.resize(1 + below(3));
            for (Tensor& tensor : group.tensors) {
                tensor = make_tensor(group.experts ? experts : 0, made.slices == 0);
            }
            if (group.experts) { continue; }
            // Partial sums of a group are neighbours.
            std::ranges::stable_sort(group.tensors, {}, [](const Tensor& tensor) {
                return tensor.attributes.tp.kind == sk::TpPlacement::Kind::partial_sum;
            });
        }
        Tensor& first = made.groups[0].tensors[0];
        first.attributes.frozen = false;
        if (made.rule == Rule::muon) {  // which wants a matrix, and something else
            first.extents.resize(made.groups[0].experts ? 3 : 2, 4);
            first.attributes.matrix = true;
            made.groups.push_back({"rest", {{{3}, {}}}, false});
        }
        for (Side& side : made.sides) { side = make_side(made.groups.size(), experts, made.slices); }
        for (std::size_t& each : made.first) { each = below(3) == 0 ? below(3) : 0; }
        if (half) {
            using enum sk::MasterWeights;
            made.masters = std::array{kept, kept, none, split}[below(4)];
            made.rounds = made.masters == none && below(2) == 0;
        }
        made.in_files = below(2) == 0;
        const std::size_t way = below(4);
        made.follows = way == 0;
        made.in_backward = way == 1 && made.rule != Rule::adafactor && made.rule != Rule::muon && !made.scales;
        made.steps.resize(2 + below(4));
        made.moved_before = 1 + below(made.steps.size() - 1);
        for (Step& step : made.steps) {
            step.seed = random_();
            step.microbatches = 1 + below(3);
            for (std::size_t g = 0; g < made.groups.size(); ++g) { step.skipped.push_back(below(8) == 0); }
            if (std::ranges::count(step.skipped, 1) == std::ssize(step.skipped)) { step.skipped[0] = 0; }
            if (made.rule == Rule::muon) { std::ranges::fill(step.skipped, 0); }
            step.divisor = std::array{0.0, 1.0, 0.5, 16.0}[below(4)];
            for (const Side& side : made.sides) {
                if (!std::has_single_bit(side.data()) && step.divisor == 0) { step.divisor = 4; }
            }
            if (below(2) == 0) { step.max_norm = std::array{0.25, 1.0, 100.0}[below(3)]; }
            step.norm = std::array{sk::NormKind::two, sk::NormKind::infinity}[below(2)];
            step.initializes = below(6) == 0;
            step.fails = below(6) == 0;
            step.overflows = made.scales && below(4) == 0;
            if (made.follows) {
                step.skipped = made.steps[0].skipped;
                step.microbatches = made.steps[0].microbatches;
                step.max_norm = made.steps[0].max_norm;
                step.norm = made.steps[0].norm;
                step.initializes = false;
                step.fails = false;
            }
            step.must_add = step.overflows || made.follows;
            if (made.in_backward) {
                step.max_norm = sk::unlimited;
                step.fails = false;
            }
        }
        for (Side& side : made.sides) {
            const bool releases = made.in_backward && made.slices == 0 && below(2) == 0;
            for (std::size_t g = 0; g < made.groups.size(); ++g) {
                side.releases.push_back(releases && below(3) != 0);
            }
            for (std::size_t i = below(4); i > 0; --i) { side.passes.push_back(below(4)); }
        }
        const auto releases = [](const Side& side) { return std::ranges::count(side.releases, 1) > 0; };
        if (std::ranges::any_of(made.sides, releases)) {
            for (Step& step : made.steps) { step.microbatches = 1; }
        }
        return made;
    }

  private:
    Tensor make_tensor(std::size_t experts, bool may_add_over_tp) {
        Tensor tensor;
        if (experts > 0) { tensor.extents.push_back(experts); }
        for (std::size_t d = 1 + below(2); d > 0; --d) { tensor.extents.push_back(1 + below(18)); }
        sk::ParameterAttributes& attributes = tensor.attributes;
        attributes.experts = experts > 0;
        attributes.frozen = below(8) == 0;
        attributes.decay = below(3) != 0;
        attributes.overwritten = below(4) == 0;
        const std::size_t dimension = (experts > 0 ? 1 : 0) + below(tensor.extents.size() - (experts > 0 ? 1 : 0));
        using enum sk::TpPlacement::Kind;
        switch (below(4)) {
            case 0:
                attributes.tp = {split, dimension};
                tensor.extents[dimension] *= 2;
                break;
            case 1:
                if (experts == 0 && may_add_over_tp) { attributes.tp = {partial_sum, 0}; }
                break;
            default:
                break;
        }
        return tensor;
    }
    Side make_side(std::size_t groups, std::size_t experts, std::size_t slices) {
        Side side;
        do {
            side = {
                1 + below(6), slices > 0 ? 1 : 1 + below(4) / 3, slices > 0 ? 1 : 1 + below(4) / 3, 1, {}, {}, {}};
        } while (side.ranks() > 8 || (slices > 0 && slices % side.data() != 0));
        if (experts > 0 && below(3) != 0) {
            side.ep = below(2) == 0 ? 2 : experts;
            const bool fits = side.ep <= side.cp ? side.cp % side.ep == 0
                                                 : side.ep % side.cp == 0 && side.dp % (side.ep / side.cp) == 0;
            if (!fits || (slices > 0 && !std::has_single_bit(side.ep))) { side.ep = 1; }
        }
        for (std::size_t g = 0; g < groups; ++g) {
            std::size_t within = 1 + below(side.dp);
            while (side.dp % within != 0 || (within * side.cp) % side.ep != 0) { ++within; }
            const std::string n = ":" + std::to_string(within);
            const std::array<std::string, 7> names{"no_shard",           "shard_optimizer",  "shard_grad_op",
                                                   "full_shard",         "hybrid_shard" + n, "hybrid_optimizer" + n,
                                                   "secondary_shard" + n};
            // All groups of a model take slices in one order.
            side.policies.push_back(slices > 0 && g > 0 ? side.policies[0] : names[below(names.size())]);
        }
        return side;
    }
    std::mt19937_64 random_;
};

constexpr std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
}
/// The gradient of an element that the tokens of one data rank give, or of a tp rank where its gradients are addends.
inline double gradient_of(const Step& step, std::size_t group, std::size_t tensor, std::uint64_t element,
                          std::size_t microbatch, std::size_t data, std::size_t tp) {
    const std::uint64_t all =
        mixed(mixed(step.seed + group * 8191 + tensor) + element * 131 + microbatch * 17 + data * 5 + tp * 3);
    return (static_cast<double>(all % 5) - 2) / 4;
}
/// Of a slice: any number.
inline double gradient_of_slice(const Step& step, std::size_t group, std::size_t tensor, std::uint64_t element,
                                std::size_t slice) {
    const std::uint64_t all = mixed(mixed(step.seed + group * 8191 + tensor) + element * 131 + slice * 17);
    return std::ldexp(static_cast<double>(all % 4001) - 2000, -10 - static_cast<int>(all / 4001 % 12));
}
/// Of neighbouring slices, a power of two of them: their sum along a tree.
inline float gradient_of_slices(const Step& step, std::size_t group, std::size_t tensor, std::uint64_t element,
                                std::size_t first, std::size_t count) {
    if (count == 1) { return static_cast<float>(gradient_of_slice(step, group, tensor, element, first)); }
    return gradient_of_slices(step, group, tensor, element, first, count / 2) +
           gradient_of_slices(step, group, tensor, element, first + count / 2, count / 2);
}
/// Whether a rank has a gradient of a group in a microbatch; it adds zeros where it has none. Alike over tp.
inline bool adds(const Step& step, std::size_t group, std::size_t microbatch, std::size_t data) {
    return step.must_add || mixed(step.seed * 3 + group * 77 + microbatch * 7 + data) % 6 != 0;
}
/// The sum over all ranks of a side.
inline double total_of(const Case& given, const Side& side, const Step& step, std::size_t g, std::size_t t,
                       std::uint64_t element) {
    const Group& group = given.groups[g];
    const Tensor& tensor = group.tensors[t];
    const bool addends = tensor.attributes.tp.kind == sk::TpPlacement::Kind::partial_sum;
    std::size_t owner = 0;  // of ep
    if (group.experts) {
        std::size_t each = 1;
        for (std::size_t d = 1; d < tensor.extents.size(); ++d) { each *= tensor.extents[d]; }
        owner = element / each / (tensor.extents[0] / side.ep);
    }
    double total = 0;
    for (std::size_t m = 0; m < step.microbatches; ++m) {
        for (std::size_t data = 0; data < side.data(); ++data) {
            const std::size_t adder = group.experts ? data / side.ep * side.ep + owner : data;
            if (!adds(step, g, m, adder)) { continue; }
            for (std::size_t tp = 0; tp < (addends ? side.tp : 1); ++tp) {
                total += gradient_of(step, g, t, element, m, data, tp);
            }
        }
    }
    return total;
}

/// Whole tensors, and a norm.
struct Seen {
    std::vector<std::vector<double>> values;
    double norm = 0;
};

template <class T>
struct Training {
    using Layer = sk::Sharded<sk::TensorList<T>, sk::DynamicPolicy>;
    using P = typename Layer::Precision;

    Training(sk::Rank& rank, const Case& of, const Side& on)
        : given(of),
          side(on),
          layers(make(rank, of, on)),
          model(layers),
          optimizer(make_optimizer()),
          loss_scale(rank, {.initial = 64, .growth_interval = 2}) {}

    void initialize(std::uint64_t seed) {
        model.initialize([seed](std::string_view path, std::string_view name, std::uint64_t i) {
            const std::uint64_t all =
                mixed(seed + i * 7 + static_cast<std::uint64_t>(path.back() * 31 + name.back()));
            return static_cast<double>(all % 33) / 16 - 1;
        });
    }
    sk::checkpoint::State state() { return {model, *optimizer, loss_scale}; }

    /// The gradients of one rank of the side or, with `whole`, the sums over all ranks of it; of slices this one's.
    double step(const Step& step, std::size_t data, std::size_t tp, const Side* whole, const Seen& before) {
        const bool in_slices = given.slices > 0;
        if (in_slices) { whole = nullptr; }
        const std::size_t microbatches = in_slices          ? sk::slice_order(model).microbatches()
                                         : whole != nullptr ? 1
                                                            : step.microbatches;
        const double scale = given.scales ? loss_scale.value() : 1;
        const sk::Divisor divisor = divisor_of(step, whole);
        sk::Accumulation accumulation{model, microbatches};
        if (given.in_backward) { optimizer->step_in_backward(accumulation, {.divisor = divisor}); }
        for (std::size_t m = 0; m < microbatches; ++m) {
            // Where steps are alike, windows are opened at the same places.
            const std::uint64_t places = given.follows ? 0 : step.seed;
            const std::size_t source = in_slices ? sk::slice_of(model, m) : data;
            const std::size_t number = in_slices ? 0 : m;
            for (std::size_t g = 0; g < layers.size(); ++g) {
                if (!trains(given.groups[g])) { continue; }
                if (step.skipped[g] != 0) {
                    if (m == 0) { accumulation.skip(layers[g]); }
                    continue;
                }
                if (!before.values.empty() && mixed(places + g + m) % 4 == 0) { require_values(g, before); }
                // Which slices lack experts would depend on which rank has these.
                const bool must_add = in_slices && given.groups[g].experts;
                if (whole == nullptr && !must_add && !adds(step, g, number, source)) {
                    accumulation.add_zero(layers[g]);
                    continue;
                }
                auto gradients = accumulation.gradients(layers[g]);
                for (std::size_t t = 0; t < given.groups[g].tensors.size(); ++t) {
                    const auto& parameter = layers[g].parameters()[t];
                    const bool begins = gradients.overwrites(t);
                    for (std::size_t from = 0; from < gradients.sources(); ++from) {
                        // Of each rank that shares the experts apart, or of all of them together.
                        const bool apart = gradients.sources() > 1;
                        const std::size_t first = apart ? source + from * microbatches - data % side.ep * microbatches
                                                  : given.groups[g].experts ? source / side.ep * side.ep
                                                                            : source;
                        const std::size_t count = apart || !given.groups[g].experts ? 1 : side.ep;
                        const auto view = gradients.of_source(from, t);
                        parameter.part.for_each_run(
                            0, view.size(), [&](std::size_t i, std::size_t at, std::size_t run) {
                                for (std::size_t k = 0; k < run; ++k) {
                                    const double of = in_slices ? gradient_of_slices(step, g, t, at + k, first, count)
                                                      : whole != nullptr ? total_of(given, *whole, step, g, t, at + k)
                                                                         : own(step, g, t, at + k, m, data, tp);
                                    T& sum = view.data()[i + k];
                                    sum =
                                        T(static_cast<float>(of * scale) + (begins ? 0.0F : static_cast<float>(sum)));
                                    if (step.overflows && (whole != nullptr || source == 0)) {
                                        sum = T(std::numeric_limits<float>::infinity());
                                    }
                                }
                            });
                    }
                }
                accumulation.add(std::move(gradients));
            }
        }
        if (given.in_backward) {
            optimizer->step(std::move(accumulation), {.divisor = divisor});
            return 0;
        }
        const auto norm =
            optimizer->step(std::move(accumulation), {.divisor = divisor,
                                                      .max_norm = step.max_norm,
                                                      .loss_scale = given.scales ? &loss_scale : nullptr,
                                                      .norm = step.norm});
        return norm.value();
    }
    /// Begins a step, and gives it up. Alike on all ranks.
    void give_up(const Step& step) {
        sk::Accumulation accumulation{model, given.slices > 0 ? sk::slice_order(model).microbatches() : 2};
        for (std::size_t g = 0; g < layers.size(); ++g) {
            if (!trains(given.groups[g]) || mixed(step.seed + g) % 2 == 0) { continue; }
            auto gradients = accumulation.gradients(layers[g]);
            for (std::size_t t = 0; t < given.groups[g].tensors.size(); ++t) {
                static_cast<void>(gradients.overwrites(t));
                for (T& each : gradients.of_source(0, t)) { each = T(1000.0F); }
            }
            if (mixed(step.seed + g) % 3 != 0) { accumulation.add(std::move(gradients)); }
        }
    }
    Seen seen() {
        Seen all;
        for (std::size_t g = 0; g < layers.size(); ++g) {
            for (std::size_t t = 0; t < given.groups[g].tensors.size(); ++t) {
                std::size_t numel = 1;
                for (const std::size_t extent : given.groups[g].tensors[t].extents) { numel *= extent; }
                std::vector<double> whole(numel);
                layers[g].read_full(t, whole);
                all.values.push_back(std::move(whole));
            }
        }
        return all;
    }
    /// That a window of the group has what was seen, to the bit.
    void require_values(std::size_t g, const Seen& seen) {
        const auto window = layers[g].unshard();
        std::size_t number = 0;
        for (std::size_t before = 0; before < g; ++before) { number += given.groups[before].tensors.size(); }
        for (std::size_t t = 0; t < given.groups[g].tensors.size(); ++t) {
            const auto view = window.view(t);
            layers[g].parameters()[t].part.for_each_run(
                0, view.size(), [&](std::size_t i, std::size_t at, std::size_t run) {
                    for (std::size_t k = 0; k < run; ++k) {
                        const T expected(static_cast<float>(seen.values[number + t][at + k]));
                        if (std::memcmp(&expected, view.data() + i + k, sizeof(T)) != 0) {
                            throw std::logic_error("a window has another value of " + given.groups[g].path + ".t" +
                                                   std::to_string(t));
                        }
                    }
                });
        }
    }
    static bool trains(const Group& group) {
        return std::ranges::any_of(group.tensors, [](const Tensor& tensor) { return !tensor.attributes.frozen; });
    }

    const Case& given;
    const Side& side;
    std::vector<Layer> layers;
    sk::Model model;
    std::unique_ptr<sk::Optimizer> optimizer;
    sk::LossScale loss_scale;

  private:
    sk::Divisor divisor_of(const Step& step, const Side* whole) const {
        if (step.divisor != 0) { return sk::divide_by(step.divisor); }
        return whole != nullptr ? sk::divide_by(static_cast<double>(whole->data())) : sk::mean;
    }
    double own(const Step& step, std::size_t g, std::size_t t, std::uint64_t element, std::size_t m, std::size_t data,
               std::size_t tp) const {
        const bool addends = given.groups[g].tensors[t].attributes.tp.kind == sk::TpPlacement::Kind::partial_sum;
        const std::size_t with = given.groups[g].experts ? side.ep : 1;
        double sum = 0;
        for (std::size_t e = 0; e < with; ++e) {
            sum += gradient_of(step, g, t, element, m, data / with * with + e, addends ? tp : 0);
        }
        return sum;
    }
    static std::vector<Layer> make(sk::Rank& rank, const Case& of, const Side& side) {
        std::vector<Layer> layers;
        for (std::size_t g = 0; g < of.groups.size(); ++g) {
            std::vector<sk::NamedTensor> tensors;
            for (std::size_t t = 0; t < of.groups[g].tensors.size(); ++t) {
                const Tensor& tensor = of.groups[g].tensors[t];
                tensors.emplace_back("t" + std::to_string(t), tensor.extents, tensor.attributes);
            }
            const std::optional<sk::Slices> slices =
                of.slices > 0 ? std::optional(sk::Slices{of.slices}) : std::nullopt;
            typename Layer::Options options{sk::named_policy(side.policies[g], slices)};
            options.master = of.masters;
            if (!side.releases.empty() && side.releases[g] != 0) {
                options.gradient_release = sk::GradientRelease::at_update;
            }
            if (of.rounds) { options.stochastic_rounding = sk::StochasticRounding{7}; }
            layers.emplace_back(rank, of.groups[g].path, sk::TensorList<T>(tensors), options);
        }
        return layers;
    }
    std::unique_ptr<sk::Optimizer> make_optimizer() {
        std::vector<sk::ParamGroup> groups;
        if (std::ranges::any_of(given.groups, [](const Group& group) { return group.tensors.size() > 1; })) {
            groups.push_back({.matches = [](std::string_view, std::string_view name) { return name == "t1"; },
                              .learning_rate_scale = 0.5});
        }
        switch (given.rule) {
            case Rule::adamw:
                return std::make_unique<sk::AdamW>(model, sk::AdamWOptions{.learning_rate = 0.125}, groups);
            case Rule::sgd:
                return std::make_unique<sk::SGD>(model, sk::SgdOptions{.learning_rate = 0.125, .weight_decay = 0.25},
                                                 groups);
            case Rule::nesterov:
                return std::make_unique<sk::SGD>(
                    model, sk::SgdOptions{.learning_rate = 0.125, .rule = sk::Momentum::nesterov, .momentum = 0.75},
                    groups);
            case Rule::lion:
                return std::make_unique<sk::Lion>(model, sk::LionOptions{.learning_rate = 0.125}, groups);
            case Rule::adafactor:
                return std::make_unique<sk::Adafactor>(model, sk::AdafactorOptions{}, groups);
            case Rule::muon:
                return std::make_unique<sk::Muon>(model, sk::MuonOptions{.learning_rate = 0.125},
                                                  sk::AdamWOptions{.learning_rate = 0.125}, sk::Matrices{}, groups);
        }
        throw std::logic_error("no such rule");
    }
};

/// What one rank sees at first, and behind each step.
template <class T>
std::vector<Seen> on_one_rank(const Case& given) {
    std::vector<Seen> all;
    const Side alone{1, 1, 1, 1, std::vector<std::string>(given.groups.size(), "no_shard"), {}, {}};
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        Training<T> training(rank, given, alone);
        training.initialize(0);
        all.push_back(training.seen());
        for (std::size_t s = 0; s < given.steps.size(); ++s) {
            const Step& step = given.steps[s];
            if (step.initializes) { training.initialize(step.seed); }
            const Side& side = given.sides[s < given.moved_before ? 0 : 1];
            const double norm = training.step(step, 0, 0, &side, {});
            all.push_back(training.seen());
            all.back().norm = norm;
        }
    });
    return all;
}

inline void require_alike(const Case& given, const Side& side, const Seen& seen, const Seen& expected, bool half) {
    const bool adds_over_tensors = given.rule == Rule::adafactor || given.rule == Rule::muon;
    const double within = !adds_over_tensors ? 0 : half ? 0.05 : 2e-4;
    if (seen.norm != expected.norm && (std::isfinite(seen.norm) || std::isfinite(expected.norm))) {
        throw std::logic_error(side.text() + ": norm " + sk::detail::number_text(seen.norm) + ", expected " +
                               sk::detail::number_text(expected.norm));
    }
    for (std::size_t t = 0; t < expected.values.size(); ++t) {
        for (std::size_t i = 0; i < expected.values[t].size(); ++i) {
            const double is = seen.values[t][i];
            const double should = expected.values[t][i];
            if (!(std::abs(is - should) <= within)) {
                throw std::logic_error(side.text() + ": rule " + std::to_string(static_cast<int>(given.rule)) +
                                       ", tensor " + std::to_string(t) + " element " + std::to_string(i) + " is " +
                                       sk::detail::number_text(is) + ", expected " + sk::detail::number_text(should));
            }
        }
    }
}

template <class Groups>
sk::Schedule passed(std::size_t pass, const sk::Schedule& schedule, const Groups& groups) {
    switch (pass) {
        case 0:
            return sk::schedule::prefetch(schedule, groups, 1);
        case 1:
            return sk::schedule::overlap_reductions(schedule, groups);
        case 2:
            return sk::schedule::gather_after_update(schedule, groups);
        default:
            return sk::schedule::keep_gathered(schedule, groups, sk::ByteCount{std::size_t{1} << 20U});
    }
}

enum class Outcome : std::uint8_t { in_memory, in_files };

/// One case in a folder of its own. @throws std::logic_error where a mesh has other values than one rank
template <class T>
Outcome run_of(const Case& given, const std::string& folder, bool half) {
    const std::vector<Seen> expected = on_one_rank<T>(given);
    const auto train = [&](Training<T>& training, const Side& side, std::size_t rank, std::size_t from,
                           std::size_t to, Seen before) {
        const Mesh mesh(side.dp, side.tp, side.cp);
        const std::size_t data =
            mesh.template coordinate<sk::Dp>(rank) * side.cp + mesh.template coordinate<sk::Cp>(rank);
        const std::size_t tp = mesh.template coordinate<sk::Tp>(rank);
        sk::Schedule schedule;
        using Following = decltype(sk::schedule::follow(training.model, schedule));
        std::optional<Following> following;
        for (std::size_t s = from; s < to; ++s) {
            const Step& step = given.steps[s];
            if (step.fails) { training.give_up(step); }
            if (step.initializes) {
                training.initialize(step.seed);
                before = training.seen();
            }
            double norm = 0;
            const auto take_step = [&] { norm = training.step(step, data, tp, nullptr, before); };
            if (given.follows && s == from) {
                const auto groups = sk::describe_groups(training.model);
                schedule = sk::schedule::record(training.model, take_step);
                for (const std::size_t pass : side.passes) { schedule = passed(pass, schedule, groups); }
                following.emplace(sk::schedule::follow(training.model, schedule));
            } else {
                take_step();
            }
            Seen now = training.seen();
            now.norm = norm;
            require_alike(given, side, now, expected[s + 1], half);
            before = std::move(now);
        }
        return before;
    };
    files_in_cache::InCache files;
    const std::size_t world =
        std::max(given.first[0] + given.sides[0].ranks(), given.first[1] + given.sides[1].ranks());
    sk::threads::run(sk::DeviceMesh{world}, [&](auto& rank) {
        using Part = sk::MeshRank<Experts>;
        std::array<std::unique_ptr<Part>, 2> parts;
        std::array<std::unique_ptr<Training<T>>, 2> trainings;
        const auto begin = [&](std::size_t s) {
            const Side& side = given.sides[s];
            const bool is_in = rank.rank() >= given.first[s] && rank.rank() - given.first[s] < side.ranks();
            const auto ranks = sk::split(rank.world(), is_in ? 0 : 1, rank.rank(), "part");
            if (!is_in) { return; }
            parts[s] = std::make_unique<Part>(side.mesh(), ranks, sk::RankOptions{}, rank.streams());
            trainings[s] = std::make_unique<Training<T>>(*parts[s], given, side);
        };
        begin(0);
        Seen last;
        if (trainings[0]) {
            trainings[0]->initialize(0);
            const Seen first = trainings[0]->seen();
            require_alike(given, given.sides[0], first, expected[0], half);
            last = train(*trainings[0], given.sides[0], parts[0]->rank(), 0, given.moved_before, first);
            sk::verify_replicas(trainings[0]->model, *trainings[0]->optimizer);
        }
        begin(1);
        if (given.in_files) {
            if (trainings[0]) {
                sk::checkpoint::save(*parts[0], folder + "/run", 1, trainings[0]->state(), {.files = &files});
            }
            sk::barrier(rank.world());
            if (trainings[1]) {
                sk::checkpoint::load(*parts[1], folder + "/run/step-00000001", trainings[1]->state());
            }
        } else {
            std::array<std::optional<sk::checkpoint::State>, 2> states;
            for (std::size_t s = 0; s < 2; ++s) {
                if (trainings[s]) { states[s].emplace(trainings[s]->state()); }
            }
            sk::reshard(rank, states[0] ? &*states[0] : nullptr, states[1] ? &*states[1] : nullptr);
        }
        if (trainings[1]) {
            const Seen now = trainings[1]->seen();
            Seen there = expected[given.moved_before];
            there.norm = 0;
            require_alike(given, given.sides[1], now, there, half);
            if (trainings[0] && now.values != last.values) { throw std::logic_error("moved to other values"); }
            train(*trainings[1], given.sides[1], parts[1]->rank(), given.moved_before, given.steps.size(), now);
            sk::verify_replicas(trainings[1]->model, *trainings[1]->optimizer);
        }
    });
    return given.in_files ? Outcome::in_files : Outcome::in_memory;
}

inline Outcome run(std::uint64_t seed, const std::string& folder) {
    const bool half = seed % 3 == 0;
    const Case given = Maker(seed).make(half);
    return half ? run_of<sk::bf16>(given, folder, half) : run_of<float>(given, folder, half);
}

}  // namespace trainings
