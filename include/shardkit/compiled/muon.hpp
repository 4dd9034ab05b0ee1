// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <type_traits>
#include <vector>

#include <shardkit/compiled/optimizers.hpp>
#include <shardkit/compiled/parts_interface.hpp>
#include <shardkit/muon/muon_options.hpp>
#include <shardkit/optim/element_optimizer.hpp>
#include <shardkit/optim/matrix_rule.hpp>

namespace shardkit SHARDKIT_BUILD {

/// Several optimizers that train one model together, each some of its parameters: see optim/combined_optimizer.hpp.
class CombinedOptimizer : public Optimizer {
  public:
    CombinedOptimizer(const Model& model, const std::vector<std::reference_wrapper<Optimizer>>& parts,
                      SourceLocation where = SourceLocation::current())
        : Optimizer(model, combine(model, parts, where)) {}
    CombinedOptimizer(CombinedOptimizer&&) = delete;

  protected:
    CombinedOptimizer(const Model& model, compiled::Optimizer* made) : Optimizer(model, made) {}

  private:
    static compiled::Optimizer* combine(const Model& model,
                                        const std::vector<std::reference_wrapper<Optimizer>>& parts,
                                        SourceLocation where) {
        std::vector<compiled::Optimizer*> listed;
        for (const Optimizer& part : parts) { listed.push_back(&part.core(where)); }
        return compiled::combine(model, listed, where);
    }
};

}  // namespace SHARDKIT_BUILD

namespace shardkit::detail SHARDKIT_BUILD {

/// Whether a type is a library of products.
template <class P>
constexpr bool multiplies() {
    return rules::MatrixProducts<P, Stream, float> && rules::MatrixProducts<P, Stream, double>;
}

/// The optimizer of a Muon's matrices.
class MuonMatrices : public RuleOptimizer<MuonOptions> {
  public:
    MuonMatrices(const Model& model, compiled::Muon& muon)
        : RuleOptimizer<MuonOptions>(model, muon.matrices()), muon_(muon) {}
    std::size_t bytes_of_exchange() { return muon_.bytes_of_exchange(); }

  private:
    compiled::Muon& muon_;
};

}  // namespace SHARDKIT_BUILD

namespace shardkit SHARDKIT_BUILD {

/// Muon for a model's matrices, and AdamW for the rest: see muon/muon.hpp.
class Muon : public CombinedOptimizer {
  public:
    template <class Products>
    requires(detail::multiplies<Products>())
        Muon(const Model& model, const Products& products, const MuonOptions& options = {},
             const AdamWOptions& rest = {}, const Matrices& matrices = {},
             const std::vector<ParamGroup>& param_groups = {}, SourceLocation where = SourceLocation::current())
        : Muon(model, detail::AnyProducts<Stream>(products), options, rest, matrices, param_groups, where) {}
    explicit Muon(const Model& model, const MuonOptions& options = {}, const AdamWOptions& rest = {},
                  const Matrices& matrices = {}, const std::vector<ParamGroup>& param_groups = {},
                  SourceLocation where = SourceLocation::current())
        : Muon(model, make(model, nullptr, options, rest, matrices, param_groups, where)) {}

    detail::MuonMatrices& matrices() noexcept { return matrices_; }
    detail::RuleOptimizer<AdamWOptions>& rest() noexcept { return rest_; }

  private:
    static compiled::Muon* make(const Model& model, const detail::AnyProducts<Stream>* products,
                                const MuonOptions& options, const AdamWOptions& rest, const Matrices& matrices,
                                const std::vector<ParamGroup>& param_groups, SourceLocation where) {
        return compiled::make_muon(model, products, options, rest, matrices, param_groups, where);
    }
    Muon(const Model& model, const detail::AnyProducts<Stream>& products, const MuonOptions& options,
         const AdamWOptions& rest, const Matrices& matrices, const std::vector<ParamGroup>& param_groups,
         SourceLocation where)
        : Muon(model, make(model, &products, options, rest, matrices, param_groups, where)) {}
    Muon(const Model& model, compiled::Muon* made)
        : CombinedOptimizer(model, made), matrices_(model, *made), rest_(model, made->rest()) {}

    detail::MuonMatrices matrices_;
    detail::RuleOptimizer<AdamWOptions> rest_;
};

}  // namespace SHARDKIT_BUILD
