// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <shardkit/core/checked.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/owned.hpp>
#include <shardkit/optim/optimizer.hpp>
#include <shardkit/optim/options.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::detail {
struct GroupProgress;
struct StatedStep;
}  // namespace shardkit::detail

namespace shardkit::spi SHARDKIT_CHECKED_BUILD {
class UpdateRunner;
}

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {
/// Whether a change is made, or only refused where it cannot be.
enum class Change : std::uint8_t { check, make };
class OptimizerNumbers;
class OptimizerGroups;
}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD

namespace shardkit::detail SHARDKIT_FACE {

/// What all rules' optimizers share: states (one buffer per state and group, over the elements that this rank
/// updates), parameter groups and each step's updates.
class OptimizerFrame : public Optimizer {
  public:
    /// @throws std::invalid_argument for hyper-parameters out of range, a ParamGroup that decides for no parameter,
    ///         or two groups with one path
    OptimizerFrame(const Model& model, const AnyOptions& options, std::vector<ParamGroup> param_groups,
                   SourceLocation where);
    OptimizerFrame(OptimizerFrame&&) noexcept;
    OptimizerFrame& operator=(OptimizerFrame&&) noexcept;
    ~OptimizerFrame() override;

    const AnyOptions& options(SourceLocation where = SourceLocation::current()) const;
    /// The learning rate that was given last, which set_learning_rate_factor multiplies.
    double given_learning_rate(SourceLocation where = SourceLocation::current()) const;
    /// Of the same rule.
    void set_options(const AnyOptions& options, SourceLocation where);
    std::span<const ParamGroup> param_groups(SourceLocation where = SourceLocation::current()) const;
    /// Replaces what ParamGroups give, likewise. Each is of the same parameters as before.
    ///     std::vector groups(optimizer.param_groups().begin(), optimizer.param_groups().end());
    ///     groups[0].weight_decay = decay_of(step);
    ///     optimizer.set_param_groups(std::move(groups));
    /// @throws  std::invalid_argument for what is out of range, or a parameter that another group matches than before
    void set_param_groups(std::vector<ParamGroup> param_groups, SourceLocation where = SourceLocation::current());

  protected:
    /// @param in_double  of groups that are updated in fp64, where others have a runner of their own
    OptimizerFrame(const Model& model, const AnyOptions& options, std::vector<ParamGroup> param_groups,
                   SourceLocation where, Owned<spi::UpdateRunner>&& runner, Owned<spi::UpdateRunner>&& in_double);
    /// The bytes of this rank's buffers beside states.
    std::size_t bytes_beside_states(SourceLocation where) const;

  private:
    friend spi::OptimizerContents;
    friend UpdatesOfOptimizer;
    friend CombinedParts;
    friend shardkit::Optimizer;

    template <class F>
    void for_each_group(const F& f, SourceLocation where);
    void list(SourceLocation where);
    void make_tables(SourceLocation where);
    std::uint64_t run(const Reduced& reduced, const ClipCoefficient& coefficient, const StepShare& share,
                      SourceLocation where) override;
    /// Begins a step whose groups are updated one by one. @returns what ranks state of it
    std::uint64_t begin_backward(const StatedStep& step, SourceLocation where);
    /// Gives the update of one group to the compute stream.
    /// @pre a step in backward has begun
    void run_alone(Group& group);
    /// Marks as torn what it has updated of a group.
    void tear(Group& torn, std::string_view verb, SourceLocation where);
    std::uint64_t choices(std::size_t number) const noexcept override;
    List<OptimizerFrame*> parts() override;
    OptimizerFrame& alone(std::string_view verb, SourceLocation where) override;
    /// See OptimizerContents. @returns what is behind the progress of its groups
    const GroupProgress* set_progress(const GroupProgress* of_groups, Change change, SourceLocation where);

    Owned<OptimizerNumbers> numbers_;
    Owned<OptimizerGroups> groups_;
};

}  // namespace shardkit::detail SHARDKIT_FACE

#ifndef SHARDKIT_COMPILED
#include <shardkit/optim/frame_members.hpp>
#endif
