// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include <shardkit/comm/stream.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/muon/matrix_frame.hpp>
#include <shardkit/muon/muon_options.hpp>
#include <shardkit/optim/combined_optimizer.hpp>
#include <shardkit/optim/element_optimizer.hpp>
#include <shardkit/optim/matrix_products.hpp>
#include <shardkit/optim/matrix_rule.hpp>

namespace shardkit::detail SHARDKIT_FACE {

/// The two optimizers of a Muon. No `products`: those of the library, on engines of the host.
struct MuonParts {
    MuonParts(const Model& model, const AnyProducts<Stream>& products, const MuonOptions& options,
              const AdamWOptions& rest, const Matrices& matrices, const std::vector<ParamGroup>& param_groups,
              SourceLocation where);

    RuleOptimizer<MuonOptions, MatrixFrame> matrices_;
    RuleOptimizer<AdamWOptions> rest_;
};

}  // namespace shardkit::detail SHARDKIT_FACE

namespace shardkit SHARDKIT_FACE {

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
        : Parts(model, detail::AnyProducts<Stream>(products), options, rest, matrices, param_groups, where),
          CombinedOptimizer(model, {this->matrices_, this->rest_}, where) {}
    /// With the library's own products, on engines of the host.
    /// @throws UsageError on one of devices; else as above
    explicit Muon(const Model& model, const MuonOptions& options = {}, const AdamWOptions& rest = {},
                  const Matrices& matrices = {}, const std::vector<ParamGroup>& param_groups = {},
                  SourceLocation where = SourceLocation::current())
        : Parts(model, {}, options, rest, matrices, param_groups, where),
          CombinedOptimizer(model, {this->matrices_, this->rest_}, where) {}

    /// The part that has the matrices, for its options and ParamGroups.
    detail::RuleOptimizer<MuonOptions, detail::MatrixFrame>& matrices() noexcept { return this->matrices_; }
    /// The part that has the rest.
    detail::RuleOptimizer<AdamWOptions>& rest() noexcept { return this->rest_; }

  private:
    detail::OptimizerFrame& leading(std::string_view /*verb*/, SourceLocation /*where*/) override {
        return this->matrices_;
    }
};

}  // namespace SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/muon/muon_members.hpp>
#endif
