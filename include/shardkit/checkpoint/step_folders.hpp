// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_folder.hpp>
#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/manifest.hpp>
#include <shardkit/checkpoint/open_file.hpp>
#include <shardkit/checkpoint/save_mark.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::detail {

/// The name of the mark in a step's folder until it is committed.
inline constexpr std::string_view mark_name = "uncommitted.shardkit";

/// Returns the name of a step's folder while it is made or removed: "step-00001000.tmp-0123456789abcdef".
inline std::string temporary_name(std::uint64_t step, std::uint64_t token) {
    return concat(step_name(step), temporary_mark, token_text(token));
}
/// Returns the name that what is no step gets in place of a step's: "aside-step-00001000-0123456789abcdef".
inline std::string aside_name(std::uint64_t step, std::uint64_t token) {
    return concat("aside-", step_name(step), "-", token_text(token));
}
/// Returns the step of a temporary name, if it is one.
inline std::optional<std::uint64_t> step_of_temporary(std::string_view name) {
    const std::size_t mark = name.find(temporary_mark);
    if (mark == std::string_view::npos) { return std::nullopt; }
    if (!is_token_text(name.substr(mark + temporary_mark.size()))) { return std::nullopt; }
    return step_of(name.substr(0, mark));
}

/// Removes a folder and its contents, but does not follow links. Stops at the first error. The files that identify a
/// save are removed last, so that the rest is recognized after a kill. @pre the folder itself is no link
inline int remove_all(checkpoint::FileCalls& calls, const std::string& path) {
    std::vector<std::string> names;
    if (const int error = calls.list(path, names); error != 0) { return error; }
    const auto is_last = [](const std::string& name) { return name == mark_name || name == manifest_name; };
    std::partition(names.begin(), names.end(), [&](const std::string& name) { return !is_last(name); });
    for (const std::string& name : names) {
        const std::string inside = concat(path, "/", name);
        int error = calls.remove_file(inside);
        if (error == EISDIR || error == EPERM) { error = remove_all(calls, inside); }
        if (error != 0 && error != ENOENT) { return error; }  // another process may remove it too
    }
    const int error = calls.remove_folder(path);
    return error == ENOENT ? 0 : error;
}

/// Removes the temporary folder of a process that has ended. `refusal()` says why one without a mark, as an old step
/// whose removal was interrupted, is no save's.
/// @returns why it stays; empty if it is gone, or is made
template <class Refusal>
std::string remove_stale(checkpoint::FileCalls& calls, const std::string& path, SourceLocation where,
                         const Refusal& refusal) {
    bool link = false;
    if (calls.is_link(path, link) != 0) { return ""; }  // another job has removed it
    if (link) { return "a link: what is behind it is no save's to remove"; }
    std::vector<std::string> inside;
    int error = calls.list(path, inside);
    SaveMark mark(calls);
    if (error == 0 && inside.empty()) {
        // Just made, or abandoned while empty: a running save makes it again.
        error = calls.remove_folder(path);
    } else if (error == 0) {
        if (std::find(inside.begin(), inside.end(), mark_name) == inside.end()) {
            if (std::string why = refusal(); !why.empty()) { return why; }
        } else if (const auto why = mark.take(concat(path, "/", mark_name), where)) {
            return *why;
        }
        error = remove_all(calls, path);
    }
    return error == 0 || error == ENOENT ? "" : errno_text(error);
}

/// The steps of a run's folder: which to remove, and why others stay. Nothing is removed that no save has made, or
/// through a link.
class StepFolders {
  public:
    /// @param skipped  gets a line for each entry that stays, with the reason
    StepFolders(checkpoint::FileCalls& calls, std::string folder, std::vector<std::string>& skipped)
        : calls_(calls), folder_(std::move(folder)), skipped_(skipped) {}

    /// Returns all steps, committed or not, the latest first.
    /// @throws FileError when the folder cannot be listed
    std::vector<std::uint64_t> steps(SourceLocation where) const {
        std::vector<std::uint64_t> steps;
        for (const std::string& name : names(where)) {
            if (const auto step = step_of(name)) { steps.push_back(*step); }
        }
        std::stable_sort(steps.begin(), steps.end(), std::greater<>{});
        return steps;
    }
    /// Returns why a save cannot have made the step's folder; empty if it has.
    std::string refusal(std::uint64_t step, SourceLocation where) const { return refusal(path(step), step, where); }
    /// Returns why a step is not complete: its manifest and the sizes of its files; empty if it is.
    std::string incomplete(std::uint64_t step, SourceLocation where) const {
        try {
            read_whole_manifest(calls_, path(step), where);
        } catch (const FileError& error) { return concat(error.path(), " ", error.what_happened()); }
        return refusal(step, where);
    }
    /// Removes a step. @returns the reason for a failure; empty on success
    std::string remove(std::uint64_t step, std::uint64_t token, SourceLocation where) const {
        if (std::string why = refusal(step, where); !why.empty()) { return why; }
        const std::string going = concat(folder_, "/", temporary_name(step, token));
        int error = calls_.rename(path(step), going);
        if (error == 0) { error = remove_all(calls_, going); }
        return error == 0 ? "" : errno_text(error);
    }
    /// Removes all steps up to `newest`, except the newest `keep` complete ones and multiples of `every`.
    void keep(std::uint64_t newest, std::size_t keep, std::uint64_t every, std::uint64_t token,
              SourceLocation where) const {
        std::size_t kept = 0;
        for (const std::uint64_t step : steps(where)) {
            if (step > newest) {
                tell(step_name(step), "a later step, which `latest` finds first: see roll_back");
            } else if (kept < keep) {
                const std::string why = step == newest ? "" : incomplete(step, where);
                if (why.empty()) { ++kept; }
                if (!why.empty()) { tell(step_name(step), why); }
            } else if (every == 0 || step % every != 0) {
                const std::string why = remove(step, token, where);
                if (!why.empty()) { tell(step_name(step), why); }
            }
        }
    }
    /// Removes all steps above `step`, which must be complete; see the public function.
    void roll_back(std::uint64_t step, std::uint64_t token, SourceLocation where) const {
        if (const Manifest manifest = read_whole_manifest(calls_, path(step), where); manifest.step != step) {
            throw_file_error(path(step), where, "has a manifest of step ", manifest.step);
        }
        std::vector<std::uint64_t> later = steps(where);
        later.erase(std::lower_bound(later.begin(), later.end(), step, std::greater<>{}), later.end());
        for (const std::uint64_t each : later) {
            bool link = false;
            require(calls_.is_link(path(each), link), path(each), "cannot be looked at", where);
            if (link) { throw FileError(path(each), "is a link, behind which nothing is removed", where); }
        }
        for (const std::uint64_t each : later) {
            if (std::string why = refusal(each, where); !why.empty()) {
                tell(step_name(each), why);
            } else if (const std::string failed = remove(each, token, where); !failed.empty()) {
                throw_file_error(path(each), where, "cannot be removed: ", failed);
            }
        }
    }
    /// Removes what processes left behind that ended during a save or a removal.
    void remove_stale(SourceLocation where) const {
        for (const std::string& name : names(where)) {
            const auto step = step_of_temporary(name);
            if (!step) { continue; }
            const std::string each = concat(folder_, "/", name);
            const std::string why =
                detail::remove_stale(calls_, each, where, [&] { return refusal(each, *step, where); });
            if (!why.empty()) { tell(name, why); }
        }
    }

  private:
    std::string path(std::uint64_t step) const { return concat(folder_, "/", step_name(step)); }
    void tell(std::string_view name, std::string_view why) const { skipped_.push_back(concat(name, ": ", why)); }
    std::vector<std::string> names(SourceLocation where) const {
        std::vector<std::string> names;
        require(calls_.list(folder_, names), folder_, "cannot be listed", where);
        return names;
    }
    std::string refusal(const std::string& path, std::uint64_t step, SourceLocation where) const {
        bool link = false;
        if (const int error = calls_.is_link(path, link); error != 0) { return errno_text(error); }
        if (link) { return "a link: what is behind it is no save's to remove"; }
        const std::string manifest = concat(path, "/", manifest_name);
        std::string text;
        try {
            text = read_file(calls_, manifest, safetensors::max_header_bytes, where);
            const std::uint64_t said = ManifestReader::read(text).step;
            return said == step ? "" : concat("its manifest is of step ", said);
        } catch (const FileError& error) {
            return concat("nothing that a save has made: ", error.path(), " ", error.what_happened());
        } catch (const JsonError& error) {
            // A damaged manifest still comes from a save.
            if (text.starts_with(manifest_begin)) { return ""; }
            return concat("nothing that a save has made: ", manifest, " ", error.what);
        }
    }

    checkpoint::FileCalls& calls_;
    std::string folder_;
    std::vector<std::string>& skipped_;
};

}  // namespace shardkit::detail
