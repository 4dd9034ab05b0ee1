// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_folder.hpp>
#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/file_names.hpp>
#include <shardkit/checkpoint/json_reader.hpp>
#include <shardkit/checkpoint/manifest.hpp>
#include <shardkit/checkpoint/open_file.hpp>
#include <shardkit/checkpoint/safetensors.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>

namespace shardkit::detail {

/// The files of a model of any origin, found from the user's path: a file, an index, or a folder.
struct ModelFiles {
    std::vector<std::string> paths;
    std::map<std::string, std::string> place;  ///< path of a tensor where an index names it; else empty

    /// @throws FileError that lists what is there, if it is no model or several
    static ModelFiles of(checkpoint::FileCalls& calls, const std::string& path, SourceLocation where) {
        std::vector<std::string> names;
        if (calls.list(path, names) == 0) { return in_folder(calls, path, names, where); }
        if (path.ends_with(".json")) { return of_index(calls, path, where); }
        return {{path}, {}};
    }

  private:
    /// The forms of a model in a folder whose files begin with one stem, for example "model".
    struct Forms {
        std::string file;             // model.safetensors
        std::string index;            // model.safetensors.index.json
        List<NumberedName> numbered;  // model-0000i-of-0000K.safetensors, by K and i
    };

    static ModelFiles in_folder(checkpoint::FileCalls& calls, const std::string& folder,
                                const std::vector<std::string>& names, SourceLocation where) {
        std::map<std::string, Forms> stems;
        for (const std::string& name : names) {
            if (name.ends_with(index_ending)) {
                stems[name.substr(0, name.size() - index_ending.size())].index = name;
            } else if (name.ends_with(tensors_ending)) {
                const std::string stem = name.substr(0, name.size() - tensors_ending.size());
                if (const auto piece = NumberedName::read(stem)) {
                    stems[std::string(piece->base)].numbered.push_back({{}, piece->number, piece->count});
                } else {
                    stems[stem].file = name;
                }
            }
        }
        // Files with the usual name are the model, whatever else is in the folder.
        std::vector<std::string> known;
        for (const auto& each : stems) { known.push_back(each.first); }
        const std::string stem = stems.size() == 1 ? known.front() : "model";
        const auto found = stems.find(stem);
        if (found == stems.end()) {
            const std::string steps = steps_in_words(names);
            throw_file_error(folder, where,
                             !steps.empty() ? steps
                                            : concat("is a folder without model.safetensors or ", index_name,
                                                     ", and with ", safetensors::listed(known), ": expected "),
                             "the files of one model, or the path of one");
        }
        Forms& forms = found->second;
        std::stable_sort(forms.numbered.begin(), forms.numbered.end(),
                         [](const NumberedName& a, const NumberedName& b) {
                             return a.count != b.count ? a.count < b.count : a.number < b.number;
                         });
        std::vector<std::string> all;
        for (const std::string& name : {forms.file, forms.index}) {
            if (!name.empty()) { all.push_back(name); }
        }
        std::uint64_t count = 0;
        for (const NumberedName& each : forms.numbered) {
            if (forms.index.empty() && each.count != std::exchange(count, each.count)) {
                all.push_back(concat(NumberedName::of(stem, each.number, each.count), tensors_ending));
            }
        }
        if (all.size() > 1) {
            throw_file_error(folder, where, "has a model in several forms, of which others read one or another: ",
                             safetensors::listed(all), ": expected the path of one of them");
        }
        if (!forms.index.empty()) { return of_index(calls, concat(folder, "/", forms.index), where); }
        if (!forms.file.empty()) { return {{concat(folder, "/", forms.file)}, {}}; }
        ModelFiles files;
        for (std::uint64_t number = 1; number <= std::max(count, forms.numbered.back().number); ++number) {
            const std::string name = concat(NumberedName::of(stem, number, count), tensors_ending);
            bool is_there = false;
            for (const NumberedName& each : forms.numbered) { is_there = is_there || each.number == number; }
            if (!is_there || number > count) {
                throw_file_error(folder, where, "has no index, and ", forms.numbered.size(), " files of a model's ",
                                 count, ": '", name, number > count ? "' is one too many" : "' is not there");
            }
            files.paths.push_back(concat(folder, "/", name));
        }
        return files;
    }
    static ModelFiles of_index(checkpoint::FileCalls& calls, const std::string& path, SourceLocation where) {
        const std::string text = read_file(calls, path, safetensors::max_header_bytes, where);
        const std::size_t slash = path.rfind('/');
        const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
        ModelFiles files;
        std::set<std::string> paths;
        bool has_map = false;
        try {
            JsonReader json(text);
            json.object([&](const std::string& key, std::size_t begin) {
                if (key != "weight_map") {
                    json.skip_value();
                    return;
                }
                if (std::exchange(has_map, true)) { JsonReader::fail_at(begin, "two weight_map"); }
                json.object([&](const std::string& tensor, std::size_t at) {
                    const std::string name = json.string();
                    if (!stays_inside(name)) {
                        JsonReader::fail_at(at, "'", safetensors::detail::shown(tensor),
                                            "' in a file outside of the folder");
                    }
                    if (!files.place.emplace(tensor, folder + name).second) {
                        JsonReader::fail_at(at, "a tensor twice");
                    }
                    paths.insert(folder + name);
                });
            });
            json.end();
            if (!has_map) { json.fail("expected a weight_map, which says where each tensor is"); }
        } catch (const JsonError& error) {
            throw_file_error(path, where, "no valid index: byte ", error.at, ": ", error.what);
        }
        files.paths.assign(paths.begin(), paths.end());
        return files;
    }
};

}  // namespace shardkit::detail
