// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/random.h>
#include <unistd.h>

#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/file_names.hpp>
#include <shardkit/checkpoint/manifest.hpp>
#include <shardkit/checkpoint/open_file.hpp>
#include <shardkit/checkpoint/options.hpp>
#include <shardkit/checkpoint/safetensors.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>

namespace shardkit::detail {

/// Returns the folder name of a step: "step-00001000".
inline std::string step_name(std::uint64_t step) { return concat("step-", padded(step, 8)); }
/// Returns the step of such a name, if it is one.
inline std::optional<std::uint64_t> step_of(std::string_view name) {
    if (name.substr(0, 5) != "step-" || name.size() < 13 || name.size() > 25) { return std::nullopt; }
    std::uint64_t step = 0;
    for (const char c : name.substr(5)) {
        if (c < '0' || c > '9') { return std::nullopt; }
        step = 10 * step + static_cast<std::uint64_t>(c - '0');
    }
    if (step_name(step) != name) { return std::nullopt; }
    return step;
}
/// Returns what the names in a folder say of a run's steps, for an error about a folder that is no checkpoint; empty
/// if there are none.
inline std::string steps_in_words(const std::vector<std::string>& names) {
    std::optional<std::uint64_t> latest;
    for (const std::string& name : names) { latest = std::max(latest, step_of(name)); }
    if (!latest) { return {}; }
    return concat("is the folder of a run's steps, up to ", step_name(*latest), ": expected ");
}
/// Separates the name of an unfinished save from its token: "step-00001000.tmp-0123456789abcdef".
inline constexpr std::string_view temporary_mark = ".tmp-";
/// Returns a token for the name of an unfinished save. It is different for two jobs, even if their process numbers
/// are equal.
inline std::uint64_t new_token() {
    std::uint64_t token = 0;
    if (::getrandom(&token, sizeof token, 0) == sizeof token) { return token; }
    return static_cast<std::uint64_t>(::getpid()) << 32U ^ static_cast<std::uint64_t>(std::time(nullptr));
}
/// Returns the token as text of 16 digits.
inline std::string token_text(std::uint64_t token) {
    return concat(digest_text(static_cast<std::uint32_t>(token >> 32U)),
                  digest_text(static_cast<std::uint32_t>(token)));
}
inline bool is_token_text(std::string_view text) noexcept {
    return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Returns the folder that a name is in.
inline std::string parent_of(const std::string& path) {
    const std::size_t slash = path.find_last_of('/');
    return slash == std::string::npos ? "." : path.substr(0, std::max<std::size_t>(slash, 1));
}

/// Makes a folder and its parents.
inline void make_folders(checkpoint::FileCalls& calls, const std::string& path, SourceLocation where) {
    for (std::size_t end = 1; end <= path.size(); ++end) {
        if (end < path.size() && path[end] != '/') { continue; }
        const std::string part = path.substr(0, end);
        const int error = calls.make_folder(part);
        // Parents may exist and be read-only or inaccessible.
        if (error == 0) {
            require(calls.sync_folder(parent_of(part)), part, "cannot be made durable", where);
        } else if (end == path.size() && error != EEXIST) {
            require(error, path, "cannot be made", where);
        }
    }
}
/// Opens a file of a checkpoint. @throws FileError when it is missing or has another size than in the manifest
inline OpenFile open_listed(checkpoint::FileCalls& calls, const std::string& folder, const Manifest::File& file,
                            SourceLocation where) {
    OpenFile opened = OpenFile::to_read(calls, concat(folder, "/", file.name), where);
    if (opened.size() != file.bytes) {
        throw_file_error(opened.path(), where, "has ", opened.size(), " bytes, expected ", file.bytes);
    }
    return opened;
}
/// Reads the manifest of a checkpoint's folder. Its files are not checked.
/// @throws FileError that says what is missing or wrong
inline Manifest read_manifest(checkpoint::FileCalls& calls, const std::string& folder, SourceLocation where) {
    const std::string path = concat(folder, "/", manifest_name);
    std::string text;
    try {
        text = read_file(calls, path, safetensors::max_header_bytes, where);
    } catch (const FileError&) {
        std::vector<std::string> names;
        const std::string steps = calls.list(folder, names) == 0 ? steps_in_words(names) : std::string();
        if (!steps.empty()) {
            throw_file_error(folder, where, steps, "the folder of one of them, as checkpoint::latest returns");
        }
        throw;
    }
    try {
        return ManifestReader::read(text);
    } catch (const JsonError& error) {
        throw_file_error(path, where, "no valid manifest: byte ", error.at, ": ", error.what);
    }
}

/// Reads the manifest, and checks that its files exist with their sizes.
inline Manifest read_whole_manifest(checkpoint::FileCalls& calls, const std::string& folder, SourceLocation where) {
    Manifest manifest = read_manifest(calls, folder, where);
    for (const Manifest::File& file : manifest.files) { open_listed(calls, folder, file, where); }
    return manifest;
}

/// Returns the latest step of a run's folder whose manifest and file sizes are right; none if there is no such step
/// or no folder. Entries that only look like a step are listed in `skipped`.
inline std::optional<checkpoint::Folder> latest_of(checkpoint::FileCalls& calls, const std::string& folder,
                                                   std::vector<std::string>& skipped, SourceLocation where) {
    std::vector<std::string> names;
    const int error = calls.list(folder, names);
    if (error == ENOENT) { return std::nullopt; }
    require(error, folder, "cannot be listed", where);
    struct Step {
        std::uint64_t step;
        std::string name;
    };
    List<Step> steps;
    for (const std::string& name : names) {
        if (const auto step = step_of(name)) {
            steps.push_back({*step, name});
        } else if (name.substr(0, 5) == "step-") {
            skipped.push_back(concat(name, ": a save that was not committed, or is under way"));
        }
    }
    std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.step > b.step; });
    std::stable_sort(skipped.begin(), skipped.end(), std::less<>{});
    for (const auto& [step, name] : steps) {
        const std::string path = concat(folder, "/", name);
        try {
            const Manifest manifest = read_whole_manifest(calls, path, where);
            if (manifest.step == step) { return checkpoint::Folder{path, step, skipped}; }
            skipped.push_back(concat(name, ": its manifest is of another step"));
        } catch (const FileError& reason) {
            skipped.push_back(concat(name, ": ", reason.path(), " ", reason.what_happened()));
        }
    }
    return std::nullopt;
}

}  // namespace shardkit::detail

namespace shardkit::checkpoint {

/// The contents of a checkpoint's manifest.
struct Info {
    std::uint64_t step = 0;
    std::vector<std::pair<std::string, std::string>> strings{};  ///< SaveOptions::strings
    std::uint64_t bytes = 0;                                     ///< of all files except the manifest
};

/// Returns the step, strings and size of the checkpoint in `folder`, which `latest` may have named. Nothing is
/// loaded.
///     for (const auto& [key, text] : info("runs/7/step-00001000").strings) { ... }
/// Order:   not collective: the calling rank works alone.
/// Cost:    reads the manifest, and opens each file for its size.
/// @throws  FileError when the folder is no checkpoint, its manifest was changed, or a file has another size
inline Info info(const std::string& folder, FileCalls* files = nullptr,
                 SourceLocation where = SourceLocation::current()) {
    detail::Manifest manifest =
        detail::read_whole_manifest(files != nullptr ? *files : detail::posix_files(), folder, where);
    Info info{manifest.step, std::move(manifest.strings), 0};
    for (const detail::Manifest::File& file : manifest.files) { info.bytes += file.bytes; }
    return info;
}

}  // namespace shardkit::checkpoint
