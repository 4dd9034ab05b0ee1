// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_folder.hpp>
#include <shardkit/checkpoint/convert_elements.hpp>
#include <shardkit/checkpoint/crc32c.hpp>
#include <shardkit/checkpoint/file_names.hpp>
#include <shardkit/checkpoint/header_writer.hpp>
#include <shardkit/checkpoint/manifest.hpp>
#include <shardkit/checkpoint/safetensors.hpp>
#include <shardkit/checkpoint/saved_group.hpp>
#include <shardkit/checkpoint/state_to_save_or_load.hpp>
#include <shardkit/checkpoint/stored_as.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/json_string.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/detail/list.hpp>

namespace shardkit::detail {

/// One parameter's values in a file of a checkpoint.
struct PlannedTensor {
    std::size_t group = 0;
    std::size_t values = 0;  ///< index of the group's values
    std::size_t parameter = 0;
    StoredOrder order;
    std::string name;
    ElementType type{};
    std::uint64_t begin = 0;  ///< first byte in the file
    std::uint64_t bytes = 0;  ///< of the parameter's elements in the file

    /// Return the tensor's bytes in the file, and those behind the parameter's part, for elements of `size` bytes.
    std::uint64_t tensor_bytes(std::size_t size) const noexcept { return order.shape().numel() * size; }
    std::uint64_t behind(std::size_t size) const noexcept {
        return (order.shape().numel() - order.begin() - order.numel()) * size;
    }
    /// Returns whether it is the first, or only, parameter in its tensor.
    bool begins() const noexcept { return order.begin() == 0; }
};

/// One file of a checkpoint, before anything is written.
struct PlannedFile {
    std::string name;                ///< path within the folder
    std::string begin;               ///< the bytes before the first tensor
    std::uint64_t bytes = 0;         ///< size of the whole file
    List<PlannedTensor> tensors;     ///< in file order; those that share a tensor are adjacent
    std::string scalars;             ///< of the file without parameters: the bytes after `begin`
    List<Manifest::Tensor> digests;  ///< of the tensors in `scalars`
};

/// The files of a state. They depend only on names, shapes and types, so they are the same on every rank of every
/// mesh.
class CheckpointPlan {
  public:
    /// @throws std::invalid_argument for invalid names, or two tensors of one name
    CheckpointPlan(const SavedState& state, const checkpoint::TensorNames& names, std::uint64_t max_file_bytes,
                   SourceLocation where)
        : max_file_bytes_(max_file_bytes), where_(where) {
        List<StoredKind> kinds;
        for (const auto& group : state.groups) {
            for (const auto& values : group->values) {
                if (std::find(kinds.begin(), kinds.end(), values->kind) != kinds.end()) { continue; }
                if (!values->kind.has_file()) {
                    throw_invalid_argument(where_, "save: '", safetensors::detail::shown(values->kind.state),
                                           "' is what the optimizer calls a state, and no name of a file of its own: "
                                           "expected UTF-8 of at most 200 bytes without '/', other than 'master', "
                                           "'scalars', 'x.powers' and 'x-00001-of-00002'");
                }
                kinds.push_back(values->kind);
            }
        }
        for (const StoredKind& kind : kinds) { add_kind(state, names, kind); }
        for (const PlannedFile& file : files) {
            of_tensors_.add(file.name);
            of_tensors_.add(file.begin);
        }
        numbers = state.all_scalars(names, where_);
        add_numbers(state);
    }

    List<PlannedFile> files;
    std::string index;          ///< the model's index, if it has several files
    List<SavedScalar> numbers;  ///< of the state

    /// Returns the number of parameters' tensors in all files.
    std::size_t tensors() const {
        std::size_t count = 0;
        for (const PlannedFile& file : files) { count += file.tensors.size(); }
        return count;
    }
    /// Returns a hash that is equal on ranks that will write the same files.
    std::uint64_t hash() const {
        Fnv fnv = of_tensors_;
        for (const PlannedFile& file : files) {
            if (file.digests.empty()) { continue; }
            fnv.add(file.begin);
            fnv.add(file.scalars);
        }
        return fnv.hash;
    }
    /// Returns a hash of the files of parameters alone, whatever the numbers and blobs are.
    std::uint64_t hash_of_tensors() const noexcept { return of_tensors_.hash; }
    /// Adds what `hash` is of, in words as far as they fit.
    void list(Statements& all) const {
        for (const PlannedFile& file : files) {
            all.push_back({"a file", concat("'", file.name, "'")});
            for (const PlannedTensor& tensor : file.tensors) {
                all.push_back({"a tensor", concat(shardkit::name(tensor.type), " of shape ",
                                                  tensor.order.shape().describe(), ", called '", tensor.name, "'")});
            }
            all.push_back({concat("what '", file.name, "' says of its tensors"), digest_text(crc(file.begin))});
            if (!file.scalars.empty()) {
                all.push_back({concat("scalars and blobs in '", file.name, "'"), digest_text(crc(file.scalars))});
            }
        }
    }

  private:
    static std::uint32_t crc(std::string_view text) { return crc32c::of(std::as_bytes(std::span(text))); }
    void add_kind(const SavedState& state, const checkpoint::TensorNames& names, const StoredKind& kind) {
        List<PlannedTensor> tensors;
        std::vector<std::pair<std::string, std::string>> metadata{{"format", "pt"}};
        // A model's file has no such entry: it is written as other libraries write it.
        if (kind.role != Role::parameters) { metadata.emplace_back(kind_key, kind.file()); }
        std::string rule;  // of the first tensor
        for (std::size_t g = 0; g < state.groups.size(); ++g) {
            const SavedGroup& group = *state.groups[g];
            const GroupGeometry& geometry = group.geometry();
            for (std::size_t v = 0; v < group.values.size(); ++v) {
                const SavedValues& values = *group.values[v];
                if (values.kind != kind) { continue; }
                const std::size_t first = tensors.size();
                std::vector<std::string> stored_names(geometry.parameters.size());
                for (std::size_t p = 0; p < geometry.parameters.size(); ++p) {
                    if (values.of[p] == 0) { continue; }
                    for (auto& [name, order] : values.stored(names, p, where_)) {
                        append(stored_names[p], stored_names[p].empty() ? "" : " ", name);
                        if (values.code_scale > 0 && order.begin() == 0) {
                            metadata.emplace_back(concat(scale_mark, name), number_text(values.code_scale));
                        }
                        if (tensors.empty() && !values.rule.empty()) {
                            metadata.emplace_back(rule_key, rule = values.rule);
                        }
                        if (values.rule != rule && order.begin() == 0) {
                            metadata.emplace_back(concat(rule_mark, name), values.rule);
                        }
                        const std::uint64_t bytes = order.numel() * size_of(values.type);
                        tensors.push_back({g, v, p, order, std::move(name), values.type, 0, bytes});
                    }
                }
                if (first == tensors.size()) { continue; }
                for (const ParameterName& alias : geometry.aliases) {
                    const bool is_it = geometry.parameters[alias.number].name == alias.name;
                    if (is_it || stored_names[alias.number].empty()) { continue; }
                    metadata.emplace_back(concat("alias:", geometry.path, ".", alias.name),
                                          stored_names[alias.number]);
                }
            }
        }
        if (tensors.empty()) { return; }
        join(state, kind, tensors);
        // Larger elements come first: then every tensor is aligned.
        std::stable_sort(tensors.begin(), tensors.end(), [](const PlannedTensor& a, const PlannedTensor& b) {
            return size_of(a.type) > size_of(b.type);
        });
        cut(std::move(tensors), metadata, kind);
    }
    /// Moves parameters that share a tensor next to each other.
    /// @throws std::invalid_argument when two tensors of a kind have one name, even in different files, or some
    ///         elements of a tensor belong to no parameter or to two
    void join(const SavedState& state, const StoredKind& kind, List<PlannedTensor>& tensors) const {
        const auto what = [&](const PlannedTensor& of) {
            const GroupGeometry& geometry = state.groups[of.group]->geometry();
            return concat("'", geometry.path, ".", geometry.parameters[of.parameter].name, "'");
        };
        const auto form = [&](const PlannedTensor& of) {
            const SavedValues& values = *state.groups[of.group]->values[of.values];
            const double scale = values.code_scale;
            return concat(name(of.type), scale > 0 ? concat(" times ", number_text(scale)) : "", " ",
                          of.order.shape().describe(), values.rule.empty() ? "" : concat(" of ", values.rule));
        };
        std::map<std::string, List<std::size_t>> known;
        for (std::size_t t = 0; t < tensors.size(); ++t) {
            const PlannedTensor& tensor = tensors[t];
            List<std::size_t>& sharers = known[tensor.name];
            sharers.push_back(t);
            const PlannedTensor& first = tensors[sharers.front()];
            if (sharers.size() == 1) { continue; }
            if (!first.order.shares() || !tensor.order.shares()) {
                throw_invalid_argument(where_, "checkpoint: ", what(first), " and ", what(tensor),
                                       " are both stored as '", safetensors::detail::shown(tensor.name),
                                       "': expected a name for each tensor");
            }
            const std::string its = form(tensor);
            if (form(first) != its) {
                throw_invalid_argument(where_, "checkpoint: ", what(first), " and ", what(tensor), " share '",
                                       safetensors::detail::shown(tensor.name), "', as ", form(first), " and ", its,
                                       ": expected one type and shape");
            }
        }
        List<PlannedTensor> joined;
        for (const PlannedTensor& tensor : tensors) {
            List<std::size_t> sharers = std::move(known[tensor.name]);
            if (sharers.empty()) { continue; }
            std::sort(sharers.begin(), sharers.end(), [&](std::size_t a, std::size_t b) {
                return tensors[a].order.begin() < tensors[b].order.begin();
            });
            std::size_t next = 0;
            std::string before = "its beginning";
            const auto expect = [&](std::size_t begin, const std::string& behind) {
                if (begin == next) { return; }
                throw_invalid_argument(where_, "checkpoint: of '", kind.of(safetensors::detail::shown(tensor.name)),
                                       "' ", before, " ends at element ", next, " and ", behind, " begins at ", begin,
                                       ": expected one parameter for each element", values_hint(kind));
            };
            for (const std::size_t t : sharers) {
                const StoredOrder& order = tensors[t].order;
                expect(order.begin(), what(tensors[t]));
                next = order.begin() + order.numel();
                before = what(tensors[t]);
                joined.push_back(tensors[t]);
            }
            if (tensor.order.shares()) { expect(tensor.order.shape().numel(), "its end"); }
        }
        tensors = std::move(joined);
    }
    static std::string_view values_hint(const StoredKind& kind) {
        return kind.role == Role::parameters ? "" : "; a frozen one has no state or master to put there";
    }
    /// Distributes tensors over files of at most max_file_bytes or one tensor.
    void cut(List<PlannedTensor>&& tensors, const std::vector<std::pair<std::string, std::string>>& metadata,
             const StoredKind& kind) {
        List<List<PlannedTensor>> parts(1);
        std::uint64_t bytes = 0;
        std::uint64_t total = 0;
        for (PlannedTensor& tensor : tensors) {
            if (tensor.begins()) {
                const std::uint64_t size = tensor.tensor_bytes(size_of(tensor.type));
                if (!parts.back().empty() && size > max_file_bytes_ - std::min(bytes, max_file_bytes_)) {
                    parts.push_back({});
                    bytes = 0;
                }
                bytes += size;
                total += size;
            }
            parts.back().push_back(std::move(tensor));
        }
        const std::string base = kind.file();
        std::string map;
        for (std::size_t i = 0; i < parts.size(); ++i) {
            const std::string name = parts.size() == 1 ? base : NumberedName::of(base, i + 1, parts.size());
            add_file(concat(name, tensors_ending), std::move(parts[i]), metadata);
            for (const PlannedTensor& tensor : files.back().tensors) {
                if (!tensor.begins()) { continue; }
                append(map, map.empty() ? "\n  " : ",\n  ", json_string(tensor.name), ": ",
                       json_string(files.back().name));
            }
        }
        if (kind.role == Role::parameters && parts.size() > 1) {
            index = concat("{\n \"metadata\": {\"total_size\": ", total, "},\n \"weight_map\": {", map, "\n }\n}\n");
        }
    }
    void add_file(std::string name, List<PlannedTensor>&& tensors,
                  const std::vector<std::pair<std::string, std::string>>& metadata) {
        std::vector<safetensors::Tensor> listed;
        std::uint64_t at = 0;
        for (PlannedTensor& tensor : tensors) {
            if (tensor.begins()) {
                const std::uint64_t end = at + tensor.tensor_bytes(size_of(tensor.type));
                listed.push_back({tensor.name, dtype_of(tensor.type), tensor.order.shape(), {at, end}});
            }
            tensor.begin = at;
            at += tensor.bytes;
        }
        PlannedFile file{std::move(name), header(metadata, listed), 0, std::move(tensors), {}, {}};
        file.bytes = file.begin.size() + at;
        for (PlannedTensor& tensor : file.tensors) { tensor.begin += file.begin.size(); }
        files.push_back(std::move(file));
    }
    void add_numbers(const SavedState& state) {
        if (numbers.empty() && state.blobs.empty()) { return; }
        std::vector<safetensors::Tensor> listed;
        PlannedFile file{concat(scalars_file, tensors_ending), {}, 0, {}, {}, {}};
        const auto add = [&](const std::string& name, ElementType type, const TensorShape& shape,
                             std::span<const std::byte> bytes) {
            const std::size_t begin = file.scalars.size();
            listed.push_back({name, dtype_of(type), shape, {begin, begin + bytes.size()}});
            file.scalars.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
            file.digests.push_back({name, crc32c::of(bytes)});
        };
        for (const SavedScalar& scalar : numbers) {
            add(scalar.name, scalar.real ? ElementType::fp64 : ElementType::uint64, {},
                std::as_bytes(std::span(&scalar.bits, 1)));
        }
        for (const auto& [name, bytes] : state.blobs) {
            TensorShape shape;
            shape.rank = 1;
            shape.extents[0] = bytes->size();
            add(concat("blob.", name), ElementType::uint8, shape, std::as_bytes(std::span(*bytes)));
        }
        file.begin = header({{std::string(kind_key), std::string(scalars_file)}}, listed);
        file.bytes = file.begin.size() + file.scalars.size();
        files.push_back(std::move(file));
    }
    std::string header(const std::vector<std::pair<std::string, std::string>>& metadata,
                       const std::vector<safetensors::Tensor>& tensors) const {
        try {
            return header_text(metadata, tensors);
        } catch (const JsonError& error) {
            throw_invalid_argument(where_, "checkpoint: the names of tensors make no valid file: ", error.what);
        }
    }

    std::uint64_t max_file_bytes_;
    SourceLocation where_;
    Fnv of_tensors_;
};

/// Checks that a load could return SaveOptions::strings unchanged.
/// @throws std::invalid_argument that names the text
template <class Strings>
void require_texts(const Strings& strings, SourceLocation where) {
    for (const auto& [key, text] : strings) {
        if (!is_utf8(key) || !is_utf8(text)) {
            throw_invalid_argument(where, "save: checkpoint::SaveOptions::strings: '",
                                   safetensors::detail::shown(key),
                                   is_utf8(key) ? "' has a text that is not UTF-8" : "' is not UTF-8",
                                   ": expected texts; bytes are a blob's (checkpoint::State::blob)");
        }
    }
}

}  // namespace shardkit::detail
