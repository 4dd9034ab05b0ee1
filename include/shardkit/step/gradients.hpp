// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/owned.hpp>
#include <shardkit/mesh/axes.hpp>
#include <shardkit/sharded/group_ref.hpp>
#include <shardkit/step/argument_types.hpp>

namespace shardkit {

/// Marks a value as an addend of a sum over these axes that `reduce` has still to make.
template <class AxisSet>
struct Partial {
    using owed = AxisSet;
};

}  // namespace shardkit

namespace shardkit SHARDKIT_BUILD {

/// The full gradients of one microbatch on one rank, for the backward pass to add to. Their type names the axes over
/// which they are still partial, so that no optimizer or norm accepts them. Hand them back with
/// `accumulation.add(std::move(gradients))`.
template <class Params, class Precision, class Placement>
class Gradients {
  public:
    using owed = typename Placement::owed;

    /// Returns a view of the whole gradient of parameter P, in the gradient type. The backward pass adds to it.
    /// @throws UsageError after the handle was added
    template <class P>
    auto operator[](P) const {
        constexpr bool in_group = Params::template contains<P>;
        static_assert(in_group, "Gradients: this parameter is not in the group");
        if constexpr (in_group) {
            if (!group_) { detail::refuse_use(taken_, "gradient handle used after it was added; it was taken here"); }
            return whole(Params::template index<P>);
        }
    }
    /// Returns whether the backward pass must overwrite a parameter's gradient in this microbatch, every element of
    /// it. It adds otherwise, as to earlier microbatches, and always where there is no OverwrittenGradient:
    ///     const float beta = gradients.overwrites(Weight{}) ? 0 : 1;
    /// The parameter is given by its type, name or number.
    /// @throws UsageError after the handle was added; std::invalid_argument when the group has no such parameter
    template <class P>
    bool overwrites(const P& parameter, SourceLocation where = SourceLocation::current()) const {
        const std::size_t number = number_of(parameter, where);
        asked_ = true;
        return detail::overwrites(*group_, number);
    }
    /// Returns a view of the whole gradient of the parameter with that name or number.
    /// @throws UsageError after the handle was added; std::invalid_argument when the group has no such parameter
    template <class NameOrNumber>
    auto view(const NameOrNumber& parameter, SourceLocation where = SourceLocation::current()) const {
        return whole(number_of(parameter, where));
    }

    /// Returns how many gradients of each parameter the handle has. It is 1 but for experts that ep ranks share, of a
    /// policy that adds up several slices before it reduces them (NoShard and ShardOptimizer with TreeSums): there it
    /// is ep, one for the tokens of each of these ranks, since each rank's slices are a part of the tree.
    /// @throws UsageError after the handle was added
    std::size_t sources(SourceLocation where = SourceLocation::current()) const {
        return detail::sources_of(live(where));
    }
    /// Returns a view of a parameter's gradient of the tokens of one of these ranks, 0 to sources() - 1. The
    /// parameter is given by its type, name or number.
    /// @throws UsageError after the handle was added; std::invalid_argument when there is no such source, or the
    /// group
    ///         has no such parameter
    template <class P>
    auto of_source(std::size_t source, const P& parameter, SourceLocation where = SourceLocation::current()) const {
        if (source >= sources(where)) {
            throw_invalid_argument(where, "Gradients::of_source: source ", source, " given, expected one below ",
                                   sources(where));
        }
        return part(number_of(parameter, where), source);
    }

  private:
    friend Accumulation;
    Gradients(detail::Group& group, SourceLocation taken) noexcept : group_(&group), taken_(taken) {}
    /// @throws UsageError after the handle was added
    detail::Group& live(SourceLocation where) const {
        if (!group_) { detail::refuse_use(where, "gradient handle used after it was added"); }
        return *group_;
    }
    template <class P>
    std::size_t number_of(const P& parameter, SourceLocation where) const {
        return detail::number_in<Params>(live(where), parameter, where);
    }
    auto whole(std::size_t parameter) const {
        if (detail::sources_of(*group_) > 1) [[unlikely]] {
            detail::refuse_group(
                *group_, taken_,
                "each rank that shares the experts has gradients of its own, as its slices are added "
                "up first; expected gradients.of_source(source, parameter)");
        }
        return part(parameter, 0);
    }
    auto part(std::size_t parameter, std::size_t source) const {
        if (!asked_ && detail::overwrites(*group_, parameter)) [[unlikely]] {
            detail::refuse_group(*group_, taken_,
                                 "a gradient that was not zeroed is used, and nobody has asked whether it is to be "
                                 "overwritten; expected gradients.overwrites(parameter) before");
        }
        return detail::gradient_of(*group_, parameter, source).view<typename Precision::Gradient>(taken_);
    }

    detail::Owned<detail::Group, detail::drop_gradients> group_;
    SourceLocation taken_;
    mutable bool asked_ = false;  // `overwrites` was called
};

}  // namespace SHARDKIT_BUILD
