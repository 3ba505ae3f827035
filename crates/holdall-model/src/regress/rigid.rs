//! Rotations and rigid movements of three dimensions: what trajectories are compared with.

/// A rotation as a quaternion: x, y, z, w.
pub(super) type Rotation = [f64; 4];
/// A place or a step in metres.
pub(super) type Vector = [f64; 3];

/// Passes over the elements of a matrix of 4 x 4 values; about six are enough for all digits.
const PASSES_MAX: usize = 32;

pub(super) fn difference(a: Vector, b: Vector) -> Vector {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

pub(super) fn length(a: Vector) -> f64 {
    a.iter().map(|part| part * part).sum::<f64>().sqrt()
}

pub(super) fn inverse([x, y, z, w]: Rotation) -> Rotation {
    [-x, -y, -z, w]
}

/// First `b`, then `a`.
pub(super) fn product([ax, ay, az, aw]: Rotation, [bx, by, bz, bw]: Rotation) -> Rotation {
    [
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    ]
}

pub(super) fn rotated(rotation: Rotation, [x, y, z]: Vector) -> Vector {
    let [x, y, z, _] = product(product(rotation, [x, y, z, 0.0]), inverse(rotation));
    [x, y, z]
}

/// A part of the turn from one rotation to another, by the shorter way.
pub(super) fn slerp(from: Rotation, to: Rotation, part: f64) -> Rotation {
    let turn = product(inverse(from), to);
    let [x, y, z, w] = if turn[3] < 0.0 {
        turn.map(|part| -part)
    } else {
        turn
    };
    let sine = length([x, y, z]);
    let angle = sine.atan2(w);
    // Of nearly nothing, a part.
    let factor = if sine > 1e-12 {
        (part * angle).sin() / sine
    } else {
        part
    };
    product(from, [x * factor, y * factor, z * factor, (part * angle).cos()])
}

/// The angle of a rotation in degrees, at most 180.
pub(super) fn angle_deg([x, y, z, w]: Rotation) -> f64 {
    2.0 * length([x, y, z]).atan2(w.abs()).to_degrees()
}

/// The mean of places.
pub(super) fn centre(places: impl ExactSizeIterator<Item = Vector>) -> Vector {
    let count = places.len() as f64;
    let sum = places.fold([0.0; 3], |sum, at| {
        [sum[0] + at[0], sum[1] + at[1], sum[2] + at[2]]
    });
    sum.map(|part| part / count)
}

/// The rotation that brings the steps of `pairs` from their second to their first with the least squares of distances (Horn, "Closed-form
/// solution of absolute orientation using unit quaternions", 1987): the vector of the largest value of a symmetric matrix.
pub(super) fn best_rotation(pairs: impl Iterator<Item = (Vector, Vector)>) -> Rotation {
    let mut s = [[0.0; 3]; 3];
    for (to, from) in pairs {
        for (row, from) in s.iter_mut().zip(from) {
            for (sum, to) in row.iter_mut().zip(to) {
                *sum += from * to;
            }
        }
    }
    let [[xx, xy, xz], [yx, yy, yz], [zx, zy, zz]] = s;
    // In the order x, y, z, w.
    let mut matrix = [
        [xx - yy - zz, xy + yx, zx + xz, yz - zy],
        [xy + yx, yy - xx - zz, yz + zy, zx - xz],
        [zx + xz, yz + zy, zz - xx - yy, xy - yx],
        [yz - zy, zx - xz, xy - yx, xx + yy + zz],
    ];
    let vectors = diagonalize(&mut matrix);
    let largest = (0..4)
        .max_by(|a, b| matrix[*a][*a].total_cmp(&matrix[*b][*b]))
        .unwrap_or(3);
    vectors.map(|row| row[largest])
}

/// Turns a symmetric matrix until it has values on its diagonal only (Jacobi); returns the vectors of these values as columns.
fn diagonalize(matrix: &mut [[f64; 4]; 4]) -> [[f64; 4]; 4] {
    let mut vectors = [[0.0; 4]; 4];
    (0..4).for_each(|at| vectors[at][at] = 1.0);
    for _ in 0..PASSES_MAX {
        let mut is_changed = false;
        for p in 0..3 {
            for q in p + 1..4 {
                let beside = matrix[p][q];
                if beside.abs() <= f64::EPSILON * (matrix[p][p].abs() + matrix[q][q].abs()) {
                    continue;
                }
                is_changed = true;
                let half = (matrix[q][q] - matrix[p][p]) / (2.0 * beside);
                let tangent = half.signum() / (half.abs() + half.hypot(1.0));
                let cosine = 1.0 / tangent.hypot(1.0);
                let sine = tangent * cosine;
                let turn =
                    |a: &mut f64, b: &mut f64| (*a, *b) = (cosine * *a - sine * *b, sine * *a + cosine * *b);
                for row in matrix.iter_mut().chain(&mut vectors) {
                    if let Ok([a, b]) = row.get_disjoint_mut([p, q]) {
                        turn(a, b);
                    }
                }
                if let Ok([one, other]) = matrix.get_disjoint_mut([p, q]) {
                    one.iter_mut().zip(other).for_each(|(a, b)| turn(a, b));
                }
            }
        }
        if !is_changed {
            break;
        }
    }
    vectors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rotation_between_places_is_found_and_none_is_a_mirror() {
        let half = 0.5_f64.sqrt();
        let from = [
            [1.0, 0.0, 0.0],
            [0.0, 2.0, 0.0],
            [0.0, 0.0, 3.0],
            [1.0, 1.0, -1.0],
        ];
        for rotation in [
            [0.0, 0.0, half, half],
            [0.0, 0.0, 0.0, 1.0],
            [1.0, 0.0, 0.0, 0.0],
            [0.5, -0.5, 0.5, 0.5],
            [0.1_f64, 0.2, 0.3, 0.86_f64.sqrt()],
        ] {
            let found = best_rotation(from.iter().map(|at| (rotated(rotation, *at), *at)));
            let apart = angle_deg(product(inverse(rotation), found));
            assert!(apart < 1e-6, "{rotation:?}: {found:?} is {apart} away");
        }
        // A mirror image has no rotation that brings all to their places.
        let found = best_rotation(from.iter().map(|[x, y, z]| ([-x, *y, *z], [*x, *y, *z])));
        assert!((found.iter().map(|part| part * part).sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(length(difference(rotated(found, from[3]), [-1.0, 1.0, -1.0])) > 0.1);
    }
}
