// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/combined_optimizer.hpp>
#include <shardkit/optim/lion.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/param/tensor_list.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/loss_scale.hpp>

/// Random optimizers with options at the edges of what they may be, rates of 0 among them. Options that cannot mean
/// anything are refused, and no others. With what is accepted, a zero parameter without a gradient stays zero, a rate
/// of 0 moves nothing, an overflow on any rank skips the step on all, and a factor of all rates is what setting each
/// of them is.
namespace optimizers {

namespace sk = shardkit;
enum class Outcome : std::uint8_t { refused, stepped };
enum class Kind : std::uint8_t { adamw, amsgrad, sgd, lion, muon, combined };

inline void require(bool holds, const char* what) {
    if (!holds) { throw std::runtime_error(what); }
}

class Maker {
  public:
    explicit Maker(std::uint64_t seed) : random_(seed) {}
    std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }
    /// An edge now and then, and otherwise one of two usual numbers.
    double number(double usual, double other) {
        constexpr double infinity = std::numeric_limits<double>::infinity();
        static const double edges[] = {0,   -0.0,     1e-310, 1e-50, 1e-40, 1.2e-38,  1e-12,
                                       0.5, 1 - 1e-9, 1,      2,     1e29,  2e30,     1e39,
                                       -1,  1e308,    -1e-9,  1e19,  3e38,  infinity, std::nan("")};
        if (below(6) == 0) { return edges[below(std::size(edges))]; }
        return below(3) == 0 ? other : usual;
    }

  private:
    std::mt19937_64 random_;
};

struct Case {
    explicit Case(Maker& maker)
        : kind(static_cast<Kind>(maker.below(6))),
          rate(maker.number(0.01, 0)),
          rest_rate(maker.number(0.001, 0)),
          beta1(maker.number(0.9, 0)),
          beta2(maker.number(0.99, 0)),
          epsilon(maker.number(1e-8, 1e-3)),
          decay(maker.number(0.1, 0)),
          momentum(maker.number(0.9, 0.5)),
          group_scale(maker.number(1, 0)),
          matched(maker.below(8)),
          ranks(1 + maker.below(8) / 6),
          tp(1 + maker.below(8) / 7),
          policy(maker.below(3)),
          overflowing(maker.below(4) == 0 ? maker.below(ranks * tp) : 100) {
        for (double& factor : factors) {
            static const double usual[] = {0, 0.5, 1, 2};
            factor = usual[maker.below(4)];
        }
    }
    Kind kind;
    double rate, rest_rate, beta1, beta2, epsilon, decay, momentum, group_scale;
    std::size_t matched;  // by the ParamGroup: 0: nothing; 1: the bias; others: no group
    std::size_t ranks, tp, policy, overflowing;
    double factors[3]{};
};

/// What may be, in arithmetic A, said again.
template <class A>
struct May {
    static bool finite(double v) { return std::isfinite(v) && std::abs(v) <= double{std::numeric_limits<A>::max()}; }
    static bool not_negative(double v) { return finite(v) && v >= 0; }
    static bool rate(double v) { return not_negative(v) && v <= 1e30; }
    static bool fraction(double v) { return not_negative(v) && v < 1 && static_cast<A>(v) < 1; }
    static bool positive(double v) { return finite(v) && v >= double{std::numeric_limits<A>::min()}; }
    static bool rates(double rate_, double decay) {
        return rate(rate_) && not_negative(decay) && finite(rate_ * decay);
    }
};

template <class A>
bool is_accepted(const Case& c) {
    using M = May<A>;
    if (c.matched == 0) { return false; }
    const auto rates = [&](double rate) {
        return M::rates(rate, c.decay) && (c.matched != 1 || (May<double>::not_negative(c.group_scale) &&
                                                              M::rates(rate * c.group_scale, c.decay)));
    };
    const bool betas = M::fraction(c.beta1) && M::fraction(c.beta2);
    switch (c.kind) {
        case Kind::adamw:
        case Kind::amsgrad:
            return rates(c.rate) && betas && M::positive(c.epsilon);
        case Kind::sgd:
            return rates(c.rate) && M::not_negative(c.momentum);
        case Kind::lion:
            return rates(c.rate) && betas;
        case Kind::muon:
            return rates(c.rate) && M::fraction(c.momentum) && M::positive(c.epsilon) && rates(c.rest_rate) && betas;
        case Kind::combined:
            return rates(c.rate) && betas && rates(c.rest_rate) && M::positive(c.epsilon);
    }
    return false;
}

/// An optimizer of a case, and its parts' rates.
template <class Precision>
struct Made {
    using Model = sk::Model;
    std::vector<std::unique_ptr<sk::Optimizer>> parts;  // the last one steps
    sk::Muon* muon = nullptr;

    Made(const Model& model, const Case& c) {
        std::vector<sk::ParamGroup> groups;
        if (c.matched < 2) {
            groups.push_back({.matches = [&c](auto, auto name) { return c.matched == 1 && name == "bias"; },
                              .learning_rate_scale = c.group_scale});
        }
        const sk::AdamWOptions adamw{c.rate, c.beta1, c.beta2, c.epsilon, c.decay};
        const sk::LionOptions lion{c.rate, c.beta1, c.beta2, c.decay};
        const auto add = [&]<class O>(std::unique_ptr<O> made) { parts.push_back(std::move(made)); };
        if (c.kind == Kind::adamw) {
            add(std::make_unique<sk::AdamW>(model, adamw, groups));
        } else if (c.kind == Kind::amsgrad) {
            add(std::make_unique<sk::AMSGrad>(model, adamw, groups));
        } else if (c.kind == Kind::sgd) {
            const sk::SgdOptions options{c.rate, sk::Momentum::classical, c.momentum, c.decay};
            add(std::make_unique<sk::SGD>(model, options, groups));
        } else if (c.kind == Kind::lion) {
            add(std::make_unique<sk::Lion>(model, lion, groups));
        } else if (c.kind == Kind::muon) {
            const sk::MuonOptions options{c.rate, sk::Momentum::nesterov, c.momentum, c.decay, c.epsilon};
            auto made = std::make_unique<sk::Muon>(
                model, options, sk::AdamWOptions{c.rest_rate, c.beta1, c.beta2, 1e-8, c.decay},
                sk::Matrices{.units = [](auto, auto) { return sk::MatrixUnits::last_two; }}, groups);
            muon = made.get();
            add(std::move(made));
        } else {
            std::vector<sk::ParamGroup> of_lion{
                {.matches = [](auto, auto name) { return name == "bias"; }, .updated_by = sk::UpdatedBy::another}};
            std::vector<sk::ParamGroup> of_adamw{
                {.matches = [](auto, auto name) { return name != "bias"; }, .updated_by = sk::UpdatedBy::another}};
            of_lion.insert(of_lion.end(), groups.begin(), groups.end());
            of_adamw.insert(of_adamw.end(), groups.begin(), groups.end());
            add(std::make_unique<sk::Lion>(model, lion, of_lion));
            add(std::make_unique<sk::AdamW>(
                model, sk::AdamWOptions{c.rest_rate, c.beta1, c.beta2, c.epsilon, c.decay}, of_adamw));
            add(std::make_unique<sk::CombinedOptimizer>(model,
                                                        std::vector{std::ref(*parts[0]), std::ref(*parts[1])}));
        }
    }
    sk::Optimizer& optimizer() { return *parts.back(); }
    /// Sets each part's rate by itself.
    void set_rates(const Case& c, double factor) {
        if (muon != nullptr) {
            muon->matrices().set_learning_rate(c.rate * factor);
            muon->rest().set_learning_rate(c.rest_rate * factor);
        } else {
            parts[0]->set_learning_rate(c.rate * factor);
            if (c.kind == Kind::combined) { parts[1]->set_learning_rate(c.rest_rate * factor); }
        }
    }
};

template <class Master>
Outcome run(const Case& c) {
    using Precision = sk::DefaultPrecision<Master>;
    using List = sk::TensorList<Master>;
    using Layer = sk::Sharded<List, sk::DynamicPolicy, Precision>;
    static const sk::DynamicPolicy policies[] = {sk::DynamicPolicy(sk::NoShard{}),
                                                 sk::DynamicPolicy(sk::ShardOptimizer{}),
                                                 sk::DynamicPolicy(sk::FullShard{})};
    Outcome outcome = Outcome::refused;
    sk::threads::run(sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>(c.ranks, c.tp, 1), [&](auto& rank) {
        const List list{{"weight", {3, 4}}, {"bias", {5}}, {"stack", {2, 2, 3}}, {"unused", {4, 3}}};
        const auto begin = [](Layer& layer) {
            layer.initialize([](auto, auto name, auto i) { return name == "unused" ? 0 : 0.5 + 0.125 * double(i); });
        };
        const auto values = [](Layer& layer) {
            std::vector<Master> all;
            for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
                std::vector<Master> whole(layer.parameters()[p].shape.numel());
                layer.read_full(p, whole);
                all.insert(all.end(), whole.begin(), whole.end());
            }
            return all;
        };
        const auto same = [](const std::vector<Master>& a, const std::vector<Master>& b) {
            return std::memcmp(a.data(), b.data(), a.size() * sizeof(Master)) == 0;
        };
        Layer by_factor(rank, "layer", list, {policies[c.policy]});
        Layer by_rates(rank, "layer", list, {policies[c.policy]});
        begin(by_factor);
        begin(by_rates);
        sk::Model first{by_factor};
        sk::Model second{by_rates};
        std::unique_ptr<Made<Precision>> made;
        try {
            made = std::make_unique<Made<Precision>>(first, c);
        } catch (const std::invalid_argument& error) {
            require(!is_accepted<Master>(c), "a case that may be was refused");
            require(std::string_view(error.what()).find("(") != std::string_view::npos, "a refusal without a place");
            return;
        }
        require(is_accepted<Master>(c), "a case that cannot be was accepted");
        Made<Precision> twin(second, c);
        sk::LossScale scale(rank, {.initial = 4}), twin_scale(rank, {.initial = 4});
        const auto step = [&](const auto& model, Layer& layer, Made<Precision>& of, sk::LossScale& its,
                              std::size_t number) {
            sk::Accumulation accumulation{model};
            auto gradients = accumulation.gradients(layer);
            for (std::size_t p = 0; p < 3; ++p) {
                auto view = gradients.view(p);
                for (std::size_t i = 0; i < view.size(); ++i) {
                    view.data()[i] = static_cast<Master>(static_cast<double>((i * 7 + number * 3) % 11) - 5);
                }
                if (number == 1 && rank.rank() == c.overflowing) {
                    view.data()[0] = std::numeric_limits<Master>::infinity();
                }
            }
            accumulation.add(std::move(gradients));
            of.optimizer().step(std::move(accumulation), {.loss_scale = &its});
        };
        for (std::size_t number = 0; number < 3; ++number) {
            const double factor = c.factors[number];
            bool set = true;
            try {
                made->optimizer().set_learning_rate_factor(factor);
            } catch (const std::invalid_argument&) { set = false; }
            bool twin_set = true;
            try {
                twin.set_rates(c, factor);
            } catch (const std::invalid_argument&) { twin_set = false; }
            require(set == twin_set, "a factor is refused where the rates are not, or the other way");
            if (!set) { return; }
            const auto before = values(by_factor);
            step(first, by_factor, *made, scale, number);
            step(second, by_rates, twin, twin_scale, number);
            const auto after = values(by_factor);
            require(same(after, values(by_rates)), "a factor of the rates is another step");
            if (number == 1 && c.overflowing < c.ranks * c.tp) {
                require(scale.skipped() && same(before, after), "an overflow is no skipped step");
            }
            // What has grown beyond all numbers is NaN times 0.
            const bool bounded =
                c.rate <= 2 && c.rest_rate <= 2 && c.decay <= 2 && c.group_scale <= 2 && c.momentum < 2;
            if (factor == 0 && bounded) { require(same(before, after), "a rate of 0 has moved something"); }
            for (std::size_t i = after.size() - 12; i < after.size(); ++i) {
                require(after[i] == 0, "a zero without a gradient is none any more");
            }
        }
        if (rank.rank() == 0) { outcome = Outcome::stepped; }
    });
    return outcome;
}

inline Outcome run(std::uint64_t seed) {
    Maker maker(seed);
    const Case c(maker);
    return maker.below(2) == 0 ? run<float>(c) : run<double>(c);
}

}  // namespace optimizers
