// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <shardkit/core/error.hpp>
#include <shardkit/machine/step_machine.hpp>

namespace shardkit::detail {

/// The state of a step for one group that exists. It asks the step machine for the rules, and words their errors for
/// the user.
class StepState {
  public:
    /// Starts between steps. `rows` are the group's, and must outlive this object.
    explicit StepState(const GroupRows& rows) noexcept : rows_(&rows) {
        its_.current = !rows.gathers || (rows.find(Role::gathered) == nullptr && !rows.codes);
    }

    /// Returns the state that the stores read and advance.
    GroupStep& group() noexcept { return its_; }
    const GroupRows& rows() const noexcept { return *rows_; }

    void begin(std::string_view path, SourceLocation where) {
        if (begun_) {
            throw_usage_error(where, "'", path, "': a second accumulation was started before the first one ended");
        }
        if (its_.out) {
            throw_usage_error(where, "'", path,
                              "': a step was started while a gradient handle of the last one is out");
        }
        begun_ = true;
        updates_in_backward_ = false;
        // Windows and the full copy outlive a step.
        its_ = {.current = its_.current,
                .coded = its_.coded,
                .begun = its_.begun,
                .unused = its_.unused,
                .asked = its_.asked,
                .windows = its_.windows};
    }
    void hand_out(std::string_view path, std::string_view verb, SourceLocation where) {
        const Applied applied = apply_act(its_, Act::zero, *rows_);
        if (applied.broken.has(StepRule::gradients_of_trainable)) {
            throw_usage_error(where, "'", path, "': ", verb, "() of a group whose parameters are all frozen");
        }
        require_accumulating(is_of_step(applied), path, verb, where);
        if (applied.broken.has(StepRule::add_before_zero)) {
            throw_usage_error(where, "'", path, "': ", verb,
                              "() again before the last handle was added; keep one handle");
        }
        if (applied.broken.has(StepRule::slices_one_by_one)) {
            throw_usage_error(where, "'", path, "': ", verb, "() after ", its_.added, " of ", rows_->slices,
                              " slices were added; expected one microbatch for each, reduced before the next");
        }
        its_ = applied.next;
    }
    /// Checks that an optimizer will update the group in the backward pass where its gradients are released then.
    void require_release(std::string_view path, std::string_view verb, SourceLocation where) const {
        if (!rows_->releases || updates_in_backward_) { return; }
        throw_usage_error(
            where, "'", path, "': ", verb,
            "() of a group with GradientRelease::at_update, and no update follows its reduction; expected "
            "optimizer.step_in_backward(accumulation) before");
    }
    /// Records that an optimizer updates the group once all of its microbatches are reduced.
    void update_in_backward() noexcept { updates_in_backward_ = true; }
    /// Checks that the group was not updated in the step that is under way, and is not about to be, when others may
    /// not have been.
    void require_not_updated(std::string_view path, std::string_view verb, SourceLocation where) const {
        const bool updates = its_.updated || (updates_in_backward_ && its_.finished);
        if (!begun_ || !updates) [[likely]] { return; }
        throw_usage_error(where, "'", path, "': ", verb,
                          " between the group's update and the end of the step that updates it in its backward pass; "
                          "expected after optimizer.step(std::move(accumulation))");
    }
    void take_back() noexcept { its_.out = false; }
    /// Checks an add. @throws UsageError when the handle has outlived its accumulation
    void check_add(std::string_view path, SourceLocation where) const {
        require_accumulating(true, path, "add", where);
    }
    /// Counts a microbatch, and returns how its gradients join those of earlier ones.
    SliceCarry add() {
        const Applied applied = apply_act(its_, Act::add, *rows_);
        its_ = applied.next;
        return applied.carry;
    }
    /// Records that a handle was destroyed without an add: its gradients, and therefore the step's sum, are lost.
    void drop() noexcept {
        its_.out = false;
        its_.lost = true;
    }
    void finish(std::string_view path, SourceLocation where) {
        const Applied applied = apply_finish(its_);
        require_accumulating(is_of_step(applied), path, "reduce", where);
        if (applied.broken.has(StepRule::reduced_before_read)) {
            throw_usage_error(where, "'", path,
                              its_.out ? "': reduce() while a gradient handle is still out; add it"
                                       : "': a gradient handle was dropped without being added");
        }
        if (applied.broken.has(StepRule::added_or_skipped)) {
            throw_usage_error(where, "'", path,
                              "': reduce() before any gradient was added; call add, add_zero or skip");
        }
        its_ = applied.next;
    }
    void check_skip(std::string_view path, SourceLocation where) const {
        const Applied applied = apply_act(its_, Act::skip, *rows_);
        require_accumulating(!its_.skipped && !its_.finished, path, "skip", where);
        if (applied.broken.has(StepRule::gradients_of_step)) {
            throw_usage_error(where, "'", path, "': skip() after gradients were handed out in this step");
        }
    }
    void skip() { its_ = apply_act(its_, Act::skip, *rows_).next; }
    /// Records that the gradients come from elsewhere, reduced.
    void assume_reduced() noexcept { its_.finished = true; }
    /// Returns whether the last step has updated the group.
    bool updated() const noexcept { return its_.updated; }
    void end() noexcept { begun_ = false; }

    /// Returns whether a gradient buffer is handed out.
    bool taken() const noexcept { return its_.out; }
    /// Returns the number of microbatches of this step that were added.
    std::size_t added() const noexcept { return its_.added; }
    /// Returns whether a step or a handle refers to the group.
    bool busy() const noexcept { return its_.out || begun_; }
    bool accumulating() const noexcept { return begun_ && !its_.skipped && !its_.finished; }
    bool reduced() const noexcept { return begun_ && !its_.skipped && its_.finished; }
    bool skipped() const noexcept { return begun_ && its_.skipped; }

  private:
    static bool is_of_step(const Applied& applied) noexcept {
        return !applied.broken.has(StepRule::gradients_of_step);
    }
    void require_accumulating(bool holds, std::string_view path, std::string_view verb, SourceLocation where) const {
        if (begun_ && holds) { return; }
        throw_usage_error(where, "'", path, "': ", verb,
                          !begun_        ? "() outside of an accumulation"
                          : its_.skipped ? "() after the group was skipped"
                                         : "() after the last microbatch was reduced");
    }

    const GroupRows* rows_;
    GroupStep its_;
    bool begun_ = false;
    bool updates_in_backward_ = false;
};

}  // namespace shardkit::detail
