// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/factor.hpp>
#include <shardkit/core/lane_math.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/muon/host_products.hpp>
#include <shardkit/muon/matrix_optimizer.hpp>
#include <shardkit/muon/muon_options.hpp>
#include <shardkit/muon/newton_schulz.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/optim/combined_optimizer.hpp>
#include <shardkit/optim/matrix_rule.hpp>
#include <shardkit/optim/option_range.hpp>
#include <shardkit/optim/sgd.hpp>

namespace shardkit::rules {

/// One element's second pass: p = decay * p - step * x, decay = 1 - lr * weight_decay, step = lr * scale.
template <std::floating_point A>
struct MuonApply {
    A decay;
    A step;

    template <class V>
    [[gnu::always_inline]] constexpr void operator()(V& parameter, V moved) const {
        parameter = decay * parameter - step * moved;
    }
};

/// One element's first pass in arithmetic type A; V as for AdamWUpdate.
///   g = gradient_scale * gradient
///   m = momentum * m + (1 - momentum) * g
///   direction = classical: m | nesterov: momentum * m + (1 - momentum) * g
/// Source:  torch.optim.Muon; Jordan's m = momentum * m + g has the same directions
template <std::floating_point A>
struct alignas(16) MuonUpdate {
    double learning_rate;
    double weight_decay;
    double epsilon;
    Factor<A> gradient_scale;
    A momentum;
    A one_minus_momentum;
    Momentum rule;
    MuonScale scale;

    template <class V>
    [[gnu::always_inline]] constexpr void operator()(V& direction, V& buffer, V gradient) const {
        const V g = one_minus_momentum * V(gradient_scale * gradient);
        buffer = momentum * buffer + g;
        direction = rule == Momentum::nesterov ? V(momentum * buffer + g) : buffer;
    }
    constexpr MuonApply<A> apply(MatrixExtents extents) const {
        const auto rows = static_cast<double>(extents.rows);
        const auto columns = static_cast<double>(extents.columns);
        const double longer = rows > columns ? rows : columns;
        const double factor =
            scale == MuonScale::moonlight ? 0.2 * square_root(longer) : square_root(longer / columns);
        return {static_cast<A>(1 - learning_rate * weight_decay), static_cast<A>(learning_rate * factor)};
    }
};

/// Muon's part of an Optimizer, of matrices alone.
struct MuonRule : CountsSteps {
    using Options = MuonOptions;
    static constexpr std::string_view name = "Muon";
    static constexpr std::array<OptionRange<Options>, 4> ranges{
        {{"learning_rate", &Options::learning_rate, not_negative},
         {"momentum", &Options::momentum, fraction},
         {"weight_decay", &Options::weight_decay, not_negative},
         {"epsilon", &Options::epsilon, positive}}};
    static constexpr std::array<std::string_view, 1> state_names{"momentum_buffer"};

    static constexpr std::size_t state_count(const Options& /*options*/) noexcept { return 1; }
    template <class A>
    using Update = MuonUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress& /*progress*/, const Options& options, double scale) {
        return {options.learning_rate,
                options.weight_decay,
                options.epsilon,
                Factor<A>(scale),
                static_cast<A>(options.momentum),
                static_cast<A>(1 - options.momentum),
                options.rule,
                options.scale};
    }

    template <class A>
    static constexpr std::size_t scratch(MatrixExtents extents) noexcept {
        return newton_schulz_scratch<A>(extents);
    }
    static constexpr std::size_t kept(MatrixExtents /*extents*/) noexcept { return 0; }
    static constexpr std::uint64_t cost(MatrixExtents extents) noexcept { return orthogonalisation_cost(extents); }
    template <class A>
    using Works = NewtonSchulzWorks<A>;
    template <class Products, class A>
    static void transform(const Stream& stream, const Products& products, const WholeMatrix<A, Update<A>>& whole) {
        newton_schulz(stream, products, whole.extents, &whole.update->epsilon, whole.values, whole.scratch);
    }
};

}  // namespace shardkit::rules

namespace shardkit {

/// Refuses hyper-parameters out of range.
/// @throws std::invalid_argument that names the parameter, what was given and what was expected
inline void validate(const MuonOptions& options, SourceLocation where = SourceLocation::current()) {
    detail::validate_ranges<rules::MuonRule>(options, ElementType::fp64, where);
    if (options.rule == Momentum::none) {
        throw_invalid_argument(where, "Muon: rule is Momentum::none, expected classical or nesterov");
    }
}

namespace detail SHARDKIT_BUILD {

/// The two optimizers of a Muon.
struct MuonParts {
    template <class Products>
    MuonParts(const Model& model, const Products& products, const MuonOptions& options, const AdamWOptions& rest,
              const Matrices& matrices, const std::vector<ParamGroup>& param_groups, SourceLocation where)
        : is_matrix(rules::MatrixOptimizer<rules::MuonRule>::are_matrices(model, matrices)),
          matrices_(model, products, options, matrices, of(model, param_groups, true, where), where),
          rest_(model, rest, of(model, param_groups, false, where), where) {}

    /// The ParamGroups of one part. What a group gives that the part does not have is for the other one's parameters.
    std::vector<ParamGroup> of(const Model& model, const std::vector<ParamGroup>& given, bool of_matrices,
                               SourceLocation where) const {
        bool any = false;
        for (const detail::Group& group : detail::Access::each(model, where)) {
            for (const PlacedParameter& p : group.geometry().parameters) {
                any = any || (!p.frozen && is_matrix(group.path(), p.name));
            }
        }
        if (!any) {
            throw_invalid_argument(where,
                                   "Muon: no parameter is a matrix, expected one; AdamW trains the rest alone");
        }
        std::vector<ParamGroup> groups = given;
        for (std::size_t g = 0; g < groups.size(); ++g) {
            ParamGroup& group = groups[g];
            const bool foreign = of_matrices ? group.beta1 || group.beta2 : group.momentum.has_value();
            if (!foreign) { continue; }
            for (const detail::Group& in : detail::Access::each(model, where)) {
                for (const PlacedParameter& p : in.geometry().parameters) {
                    if (is_matrix(in.path(), p.name) != of_matrices || p.frozen ||
                        param_group_of(in.path(), p.name, given) != g) {
                        continue;
                    }
                    throw_invalid_argument(where, "Muon: a ParamGroup gives ", of_matrices ? "betas" : "a momentum",
                                           " to '", in.path(), ".", p.name, "', which ",
                                           of_matrices ? "Muon" : "AdamW", " updates");
                }
            }
            if (of_matrices) {
                group.beta1.reset();
                group.beta2.reset();
            } else {
                group.momentum.reset();
            }
        }
        if (!of_matrices) { groups.insert(groups.begin(), {.matches = is_matrix, .updated_by = UpdatedBy::another}); }
        return groups;
    }

    std::function<bool(std::string_view, std::string_view)> is_matrix;
    rules::MatrixOptimizer<rules::MuonRule> matrices_;
    AdamW rest_;
};

}  // namespace detail SHARDKIT_BUILD

}  // namespace shardkit

namespace shardkit SHARDKIT_BUILD {

/// Muon for a model's matrices, and AdamW for the rest: a momentum whose matrices are made orthogonal, each whole, on
/// the rank that owns it, whatever the policy and the mesh cut. See docs/optimizers.md.
///     Muon optimizer{model, {.learning_rate = 0.02}, {.learning_rate = 3e-4}};
/// Embeddings and heads are matrices too unless they are marked NoMatrix or `matrices.matches` leaves them out.
/// ParamGroups are of both: a hyper-parameter that only one of them has must be given to parameters of that one.
/// Order:   making one is collective over the world, and so is a step
/// Memory:  Muon's momentum and AdamW's two states, in the master's arithmetic type, for the elements that this rank
///          updates of groups that have such parameters; and the buffers that matrices travel through
/// Cost:    orthogonalisation_cost of each matrix on one rank; each matrix travels to its owner and back once
/// Source:  Jordan et al., Muon, 2024; Liu et al., arXiv 2502.16982; torch.optim.Muon, in fp32 or fp64 for bf16
class Muon : private detail::MuonParts, public CombinedOptimizer {
    using Parts = detail::MuonParts;

  public:
    /// With a library of products: CblasProducts, gpu::CublasProducts or one of your own.
    /// @throws as MatrixOptimizer; std::invalid_argument for a ParamGroup that gives what its parameters' optimizer
    ///         does not have
    template <class Products>
    requires(rules::MatrixProducts<Products, Stream, float>&& rules::MatrixProducts<Products, Stream, double>)
        Muon(const Model& model, const Products& products, const MuonOptions& options = {},
             const AdamWOptions& rest = {}, const Matrices& matrices = {},
             const std::vector<ParamGroup>& param_groups = {}, SourceLocation where = SourceLocation::current())
        : Parts(model, products, options, rest, matrices, param_groups, where),
          CombinedOptimizer(model, {this->matrices_, this->rest_}, where) {}
    /// With the library's own products, on engines of the host.
    /// @throws UsageError on one of devices; else as above
    explicit Muon(const Model& model, const MuonOptions& options = {}, const AdamWOptions& rest = {},
                  const Matrices& matrices = {}, const std::vector<ParamGroup>& param_groups = {},
                  SourceLocation where = SourceLocation::current())
        : Muon(model, host_products(model, where), options, rest, matrices, param_groups, where) {}

    /// The part that has the matrices, for its options and ParamGroups.
    rules::MatrixOptimizer<rules::MuonRule>& matrices() noexcept { return this->matrices_; }
    /// The part that has the rest.
    AdamW& rest() noexcept { return this->rest_; }

  private:
    detail::OptimizerFrame& leading(std::string_view /*verb*/, SourceLocation /*where*/) override {
        return this->matrices_;
    }
    static HostProducts host_products(const Model& model, SourceLocation where) {
        const auto& rank = detail::rank_of(model, where);
        if (!detail::host_reads(rank.compute_stream())) {
            throw_usage_error(where, "Muon without a library of products on the engine ", rank.world().engine_name(),
                              ", whose matrices are a device's; expected one, gpu::CublasProducts say");
        }
        return {};
    }
};

}  // namespace SHARDKIT_BUILD
